"""The audit bundle: built here, checked by one file that needs nothing of ours."""

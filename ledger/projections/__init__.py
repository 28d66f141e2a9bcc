"""Pure folds over a run's events, and the tables that some of them keep."""

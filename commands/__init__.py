"""The command line's verbs, one file a verb; modules with a leading underscore are what they share."""

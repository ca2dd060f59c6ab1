"""Studies that others can repeat, one a module: what ``demur reproduce`` runs."""

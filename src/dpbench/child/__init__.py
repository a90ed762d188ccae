"""Programs for the training interpreter; they import nothing of dpbench."""

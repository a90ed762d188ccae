"""Launch -> Environment: what run.json tells of the place of a run. Nothing here can fail a run."""

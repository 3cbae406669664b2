## Data sets that come with the library, and the text of the default run.

"""The command line. One file holds one command (`topics.py` is `ottla topics`), beside what several of them share."""

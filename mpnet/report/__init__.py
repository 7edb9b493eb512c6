"""Tables, plots and pages made from stored results; never runs a network."""

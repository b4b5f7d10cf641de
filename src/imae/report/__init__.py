"""Tables, figures and pages, made from plain numbers without torch."""

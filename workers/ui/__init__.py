"""Views in a terminal: panels, tables, plain lines.

launch/ shows its figures with them; nothing here starts or changes anything.
"""

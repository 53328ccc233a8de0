"""A notebook was saved under the module's name.

loses: C2
says: a1/perfmodel.py, line
says: This is a Jupyter notebook, not a Python file: put the code itself into the file
"""

import json


def broken(files):
    cell = {"cell_type": "code", "execution_count": None, "source": ["1 + 1"], "outputs": []}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    files["a1/perfmodel.py"] = json.dumps(notebook, indent=1).encode()

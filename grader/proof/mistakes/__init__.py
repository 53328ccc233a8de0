"""Mistakes that students make with the experiments, made by code from an honest set of results.

    mistake       what a mistake is, and how it changes the files of a copy
    operations    of Experiment 2;  recordings  of 3 and 6;  steps  of 4, 5 and 7
    inputs        what spreadsheets, interruptions and careless copying do to any file
    tally         which rules find which mistake, and that they find nothing in an honest set

A rule for points has to find every one of them.  `python -m grader.proof.mistakes FOLDER...` with
folders of honest results prints the table.
"""

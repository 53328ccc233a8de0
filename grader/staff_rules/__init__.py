"""Notes to the staff about numbers that look made up.  Never points, never shown to students.

    note          what a note is
    reading       the files as these rules read them: what cannot be read is passed over
    digits        the timer's tick, digits, repeated values
    formulas      numbers that follow a formula more closely than a measurement does
    agreement     files and columns that measured the same thing
    sidecars      which machine, which code, when
    likeness      the same numbers as somebody else's, or too far from the staff's
    report        all rules, and `staff_notes`, which the judge calls
    remeasure     a few cells measured again, where there is a GPU of the course's model

A note is a reason to look and to ask, not a finding: every rule says what honest cause it can have.

What these rules cannot tell.  Files that were honestly measured, by somebody else or on somebody
else's machine, and handed in with their sidecars are honest files; only `likeness`, over the whole
class and earlier terms, can notice that two people have the same ones.  A sidecar is text that
anyone can write.  Somebody who has read these rules can satisfy each of them; that takes about as
long as the experiments.
"""

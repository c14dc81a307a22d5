"""What of SQL texts are made of, as words: keywords alone and in pairs, calls as `name(`, operators, casts as `::type`, columns as
`.name`, and texts behind LIKE, ILIKE, ZONE and in DATE_TRUNC. Aliases and other constants are left out."""

import re

TOKEN = re.compile(r"'(?:[^']|'')*'|::\s*[\w.]+|\$\d+|[\w.]+|->>|->|@>|\|\||<>|<=|>=|[-+*/%=<>()\[\],:]")
COLUMN = re.compile(r"[a-z]\w*\.([a-z]\w*)")
BEFORE_TEXTS = {"like", "ilike", "zone", "date_trunc("}


def constructs(text: str) -> set:
    found, before = set(), ""
    for token in TOKEN.findall(text.lower()):
        if token[0] == "'":
            if before in BEFORE_TEXTS:
                found.add(f"{before} {token}")
            token = ""
        elif token[0] == "$":
            found.add("$")
            token = ""
        elif token == "(":
            token = f"{before}(" if re.fullmatch(r"[a-z]\w*", before) else "("
            found.add(token)
        elif column := COLUMN.fullmatch(token):
            found.add("." + column[1])
            token = ""
        elif re.fullmatch(r"[rc]?\d[\w.]*|[,\[\]):]", token):
            token = ""
        else:
            found.add(token)
            if re.match("[a-z]", before) and re.match("[a-z]", token):
                found.add(f"{before} {token}")
        before = token
    return found

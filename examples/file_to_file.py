"""Translate a file, a line out for each line in: python examples/file_to_file.py models/zh-en in.txt out.txt"""

import sys

import duplexmt


def main(model: str, source: str, target: str) -> None:
    translator = duplexmt.load(model)
    with open(source, encoding="utf-8") as lines, open(target, "x", encoding="utf-8") as out:  # a new file
        for translation in translator.translate_each(lines):  # many lines side by side, however long the file is
            out.write(translation)


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/bin/sh
# The data sets are the ones that data/README describes: it is read here, not
# repeated.  Run by `make check` in the build folder; $srcdir is the top folder.
readme=${srcdir:-.}/data/README
bad=0

# The value of field $2 of data set $1 in the README.
field() {
    sed -n "/^$1/,/^\$/s/^    $2  *\([0-9a-f,]*\).*/\1/p" "$readme" | tr -d ,
}

# check NAME FILE
check() {
    [ "$(wc -c <"$2" | tr -d ' ')" = "$(field "$1" Size)" ] ||
        { echo "$2 has not $(field "$1" Size) bytes"; bad=1; }
    [ "$(sha256sum <"$2" | cut -d' ' -f1)" = "$(field "$1" SHA-256)" ] ||
        { echo "$2 has not the SHA-256 of the README"; bad=1; }
}

check digits.csv "${srcdir:-.}/data/digits.csv"
check stories.txt data/stories.txt
rows=$(awk -F, 'NF == 65 && $65 ~ /^[0-9]$/' "${srcdir:-.}/data/digits.csv" |
    wc -l | tr -d ' ')
[ "$rows" = "$(field digits.csv Rows)" ] ||
    { echo "digits.csv has $rows rows of 64 pixels and a digit"; bad=1; }
exit $bad

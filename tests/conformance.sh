#!/bin/sh
# Is every test of the list in conformance.md in one row of its table, does every
# row name tests that exist, or say why there is none, and do enough have one?
# A table to read in the place of conformance.md may be given.
: "${srcdir=.}"
table=${1-$srcdir/tests/conformance.md}
least=95

# "FILE TEST" for each test of the list, sorted.
listed() {
    sed -n '/^```list$/,/^```$/p' "$table" | grep -v '^```' |
        awk '{ for (i = 1; i <= NF; i++)
                   if ($i ~ /:$/) file = substr($i, 1, length($i) - 1)
                   else print file, $i }' | sort
}

# "FILE|TEST|HERE" for each row.
rows() {
    sed -n 's/^| \([^|]*\) | \([^|]*\) | [^|]* | \(.*\) |$/\1|\2|\3/p' "$table" |
        grep -v '^File|'
}

# Prints what is wrong with one FILE:CASE or script.
missing() {
    path=${1%%:*}
    if [ ! -f "$srcdir/$path" ]; then
        echo "$2: no file $path"
    elif [ "$path" != "$1" ]; then
        grep -q "^START_TEST(${1#*:})" "$srcdir/$path" ||
            echo "$2: no test ${1#*:} in $path"
        # A case must be added to its suite, too.
        grep -q "tcase_add_.*test(.*[ ,]${1#*:}[,)]" "$srcdir/$path" ||
            echo "$2: $path does not run ${1#*:}"
    else
        case $path in
        *.sh) ;;
        *) echo "$2: $path is no script, and no case of it is named" ;;
        esac
    fi
}

wrong=$(
    listed >conformance.listed
    rows | cut -d'|' -f1,2 | tr '|' ' ' | sort >conformance.rows
    diff conformance.listed conformance.rows |
        sed -n 's/^< /no row for /p; s/^> /not in the list, or twice: /p'
    uniq -d conformance.listed | sed 's/^/twice in the list: /'
    rm -f conformance.listed conformance.rows
    rows | while IFS='|' read -r file name here; do
        case $here in
        none:\ ?*) ;;
        tests/*)
            for one in $(echo "$here" | tr ',' ' '); do
                missing "$one" "$file $name"
            done
            ;;
        *) echo "$file $name: neither a test nor a reason" ;;
        esac
    done
)
have=$(rows | grep -c '|tests/')
[ "$have" -ge "$least" ] ||
    wrong="$wrong
$have rows name a test, at least $least must"
[ -z "$wrong" ] && exit
printf '%s\n' "$wrong"
exit 1

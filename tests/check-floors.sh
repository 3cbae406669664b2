#!/bin/sh
# The floors and rooms of the library.  A file may include headers of its own
# room and of rooms on lower floors only; MPI, BLIS, Jansson and PCRE2 have one
# room each; a public header says on its first line where it lives ("Floor 1, comm:")
# and compiles alone; no source is left out of the build.  Run by `make check`,
# or by hand in the top folder; $srcdir is the top folder.
rooms='base:0 tensor:1 comm:1 nn:2 fsdp:3 optim:4 data:4 checkpoint:5 verify:6
       cli:7'
cd "${srcdir:-.}" || exit 1
bad=0
complain() { printf '%s\n' "$*"; bad=1; }

# The floor of room $1.
floor_of() {
    for r in $rooms; do
        [ "${r%:*}" = "$1" ] && echo "${r#*:}" && return
    done
    echo none
}

# The room of public header $1, by its first line.
room_of_header() {
    sed -n '1s|^/\*\* .file .*  Floor [0-9], \([a-z]*\): .*|\1|p' "include/$1"
}

# The headers that $1 includes with quotes.
includes() { sed -n 's/^[ 	]*#[ 	]*include[ 	]*"\([^"]*\)".*/\1/p' "$1"; }

# May file $1 of room $2 include header $3?
check_include() {
    case $3 in
        config.h) complain "$1 includes config.h; the compiler does that" ;;
        fsdp.h)   [ "$2" = cli ] || complain "$1 includes all of fsdp.h" ;;
        fsdp/*)
            if [ -f "include/$3" ]; then
                check_room "$1" "$2" "$3" "$(room_of_header "$3")"
            else
                check_room "$1" "$2" "$3" fsdp
            fi ;;
        */*)      check_room "$1" "$2" "$3" "${3%%/*}" ;;
        *)        [ -f "$(dirname "$1")/$3" ] ||
                      complain "$1 includes $3, which is not beside it" ;;
    esac
}

# May file $1 of room $2 include header $3 of room $4?
check_room() {
    [ "$2" = "$4" ] && return
    [ "$(floor_of "$4")" != none ] ||
        { complain "$1 includes $3, which is in no room"; return; }
    [ "$(floor_of "$4")" -lt "$(floor_of "$2")" ] ||
        complain "$1 (room $2) includes $3 (room $4), which is not below it"
}

# <$1> is included by files that match $2 only.
check_outside() {
    pattern="^[ 	]*#[ 	]*include[ 	]*[<\"]$1[>\"]"
    for file in $(grep -rlE "$pattern" include src); do
        case $file in
            $2) ;;
            *) complain "$file includes <$1>, which belongs to $2" ;;
        esac
    done
}

check_outside 'mpi\.h' 'src/comm/*'
check_outside '(blis/)?(blis|cblas)\.h' src/tensor/blas.c
check_outside 'jansson\.h' 'src/base/*'
check_outside 'xxhash\.h' 'src/base/*'
check_outside 'pcre2\.h' 'src/data/*'

for file in include/fsdp/*.h; do
    header=${file#include/}
    room=$(room_of_header "$header")
    floor=$(sed -n '1s/.*  Floor \([0-9]\), .*/\1/p' "$file")
    [ "$(floor_of "${room:-none}")" = "$floor" ] ||
        complain "$file does not begin with '/** \\file NAME  Floor N, ROOM: '"
    for used in $(includes "$file"); do
        check_include "$file" "$room" "$used"
    done
    grep -qF "#include \"$header\"" include/fsdp.h ||
        complain "include/fsdp.h does not include $header"
    grep -qwF "$header" include/local.mk ||
        complain "$file is not in include/local.mk"
done

for header in fsdp.h $(cd include && echo fsdp/*.h); do
    echo "#include \"$header\"" |
        ${CC:-cc} -std=c11 -Wall -Wextra -Werror -fsyntax-only -Iinclude \
            -xc - ||
        complain "$header does not compile alone"
done

for file in $(find src -name '*.[ch]' | sort); do
    room=${file#src/}
    room=${room%%/*}
    for used in $(includes "$file"); do
        check_include "$file" "$room" "$used"
    done
    grep -qF "%D%/${file#src/$room/}" "src/$room/local.mk" ||
        complain "$file is not in src/$room/local.mk"
done
for file in $(find tests -name 'test_*.c' | sort); do
    name=$(basename "$file" .c)
    grep -qwF "$name" "$(dirname "$file")/local.mk" ||
        complain "$file is not in $(dirname "$file")/local.mk"
done
exit $bad

## The tutorials see the public headers only.  `make check` runs each as it
## would be run by hand, on every number of ranks.
EXTRA_DIST += %D%/verdict.md

tutorials = %D%/01_first_run

check_PROGRAMS += $(tutorials)
TESTS += $(tutorials)

%C%_01_first_run_CPPFLAGS = -I$(top_srcdir)/include
%C%_01_first_run_LDADD = libfsdp.la

## Reads a bundle of `fsdp golden` without the library; run by
## tests/cli/golden.sh.
check_PROGRAMS += %D%/02_golden_reader
%C%_02_golden_reader_CPPFLAGS = $(JANSSON_CFLAGS)
%C%_02_golden_reader_LDADD = $(JANSSON_LIBS) -lm

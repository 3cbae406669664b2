## `make check` starts every suite once for each number of ranks in FSDP_NP
## ("1 2 3 4 5" unless given) and counts one test for each start:
##     make check FSDP_NP="1 8"
## A suite that wants other counts says so in a comment line of its source,
##     /* Ranks: 1 */
## which build-aux/mpi-tap.sh reads.
##
## A room adds a suite %D%/test_x, made of %D%/test_x.c, by one word:
##     suites += %D%/test_x
## and a test that is a shell script by
##     TESTS += %D%/x.sh
##     EXTRA_DIST += %D%/x.sh
suites =

LOG_DRIVER   = env AM_TAP_AWK='$(AWK)' $(SHELL) \
               $(top_srcdir)/build-aux/tap-driver.sh
LOG_COMPILER = $(SHELL) $(top_srcdir)/build-aux/mpi-tap.sh
TEST_EXTENSIONS = .sh
SH_LOG_COMPILER = $(SHELL)

## One thread a rank unless asked otherwise, and a rank that waits gives its
## core away, so that four ranks on a two-core laptop still make progress.
## MPICH leaves a kilobyte in modules it unloads, so LeakSanitizer is no use;
## tests/mck.c counts our own blocks instead.
AM_TESTS_ENVIRONMENT = \
    MPIEXEC='$(MPIEXEC)'; CC='$(CC)'; export MPIEXEC CC; \
    FSDP_DATA_DIR='$(abs_top_srcdir)/data'; export FSDP_DATA_DIR; \
    : "$${OMP_NUM_THREADS=1}" "$${OMP_WAIT_POLICY=passive}"; \
    : "$${ASAN_OPTIONS=detect_leaks=0}" \
      "$${UBSAN_OPTIONS=print_stacktrace=1}"; \
    export OMP_NUM_THREADS OMP_WAIT_POLICY ASAN_OPTIONS UBSAN_OPTIONS;

TESTS += %D%/check-floors.sh %D%/check-data.sh %D%/conformance.sh \
         %D%/replays.sh
EXTRA_DIST += %D%/check-floors.sh %D%/check-data.sh \
              %D%/conformance.sh %D%/conformance.md \
              %D%/replays.sh %D%/replays.md \
              build-aux/mpi-tap.sh build-aux/tap-driver.sh

## What a suite is linked with, and the source it is made of by default.
LDADD = libmck.la
AM_DEFAULT_SOURCE_EXT = .c

if HAVE_CHECK
check_LTLIBRARIES += libmck.la
libmck_la_SOURCES  = %D%/mck.c %D%/mck.h %D%/refusals.c %D%/refusals.h
libmck_la_CPPFLAGS = $(AM_CPPFLAGS)
libmck_la_LIBADD   = libfsdp.la $(CHECK_LIBS)
AM_CPPFLAGS += -I$(top_srcdir)/tests $(CHECK_CFLAGS)
check_PROGRAMS += $(suites)
TESTS          += $(suites)
else
## Said before the tests and after them.
check_DATA = no-suites
check-local: no-suites
	@false
no-suites:
	@echo '****************************************************************'
	@echo 'The C suites are NOT run: configure did not find Check.'
	@echo 'apt install check, then configure again.'
	@echo '****************************************************************'
endif

## Builds the suites and runs none.
suites: $(check_PROGRAMS)
.PHONY: suites no-suites

## Suites of src/comm, one word each: a suite %D%/test_x is built from
## %D%/test_x.c alone.  See tests/local.mk.
suites += \
    %D%/test_agree \
    %D%/test_all_to_all \
    %D%/test_collectives \
    %D%/test_ledger \
    %D%/test_reduce_order \
    %D%/test_works
EXTRA_DIST += %D%/numbers.h

## Runs that must end badly: a program that does what it is told to do wrong,
## and scripts that look at its end.
check_PROGRAMS += %D%/misuse
%C%_misuse_LDADD = libfsdp.la
TESTS += %D%/launcher.sh %D%/ledger.sh %D%/watchdog.sh
EXTRA_DIST += \
    %D%/launcher.sh \
    %D%/ledger.sh \
    %D%/misuse.sh \
    %D%/watchdog.sh

## Needs 9 GB, so it runs on request only.
if HAVE_CHECK
check_PROGRAMS += %D%/test_large
check-large: %D%/test_large$(EXEEXT)
	$(MPIEXEC) -n 2 %D%/test_large$(EXEEXT)
endif

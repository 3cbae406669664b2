## Suites of src/fsdp, one word each: a suite %D%/test_x is built from
## %D%/test_x.c alone.  See tests/local.mk.
suites += \
    %D%/test_costs \
    %D%/test_events \
    %D%/test_fsdp1_api \
    %D%/test_fsdp1_costs \
    %D%/test_fsdp1_events \
    %D%/test_fsdp1_misuse \
    %D%/test_fsdp1_summon \
    %D%/test_fsdp1_training \
    %D%/test_offload \
    %D%/test_parity

fsdp_net = %D%/net.c %D%/net.h
%C%_test_events_SOURCES = %D%/test_events.c $(fsdp_net)
%C%_test_parity_SOURCES = %D%/test_parity.c $(fsdp_net)
%C%_test_fsdp1_events_SOURCES = %D%/test_fsdp1_events.c $(fsdp_net)

fsdp1_twin = %D%/fsdp1_twin.c %D%/fsdp1_twin.h $(fsdp_net)
%C%_test_fsdp1_training_SOURCES = %D%/test_fsdp1_training.c $(fsdp1_twin)
%C%_test_fsdp1_api_SOURCES = %D%/test_fsdp1_api.c $(fsdp_net)
%C%_test_fsdp1_costs_SOURCES = %D%/test_fsdp1_costs.c $(fsdp_net)
%C%_test_fsdp1_summon_SOURCES = %D%/test_fsdp1_summon.c $(fsdp_net)
%C%_test_fsdp1_misuse_SOURCES = %D%/test_fsdp1_misuse.c $(fsdp_net)

## Runs that must end badly.
check_PROGRAMS += %D%/fsdp1_wrong
%C%_fsdp1_wrong_SOURCES = %D%/fsdp1_wrong.c $(fsdp_net)
%C%_fsdp1_wrong_LDADD = libfsdp.la
TESTS += %D%/fsdp1_wrong.sh
EXTRA_DIST += %D%/fsdp1_wrong.sh


suites += %D%/test_composition
%C%_test_composition_SOURCES = \
    %D%/test_composition.c tests/nn/parallel_case.c tests/nn/parallel_case.h


## Needs 4.5 GB of disk, so it runs on request only; see the script.
check_PROGRAMS += %D%/offload_large
%C%_offload_large_LDADD = libfsdp.la
check-offload: %D%/offload_large$(EXEEXT)
	$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)' $(SHELL) \
	    $(srcdir)/tests/cli/offload-large.sh

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
fsdp_golden = %D%/golden_events.c %D%/golden_events.h
%C%_test_events_SOURCES = %D%/test_events.c $(fsdp_net) $(fsdp_golden)
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
    %D%/test_composition.c %D%/composition.c %D%/composition.h \
    tests/nn/parallel_case.c tests/nn/parallel_case.h
suites += \
    %D%/test_composition_features \
    %D%/test_tensor_parallel_shards
%C%_test_composition_features_SOURCES = \
    %D%/test_composition_features.c %D%/composition.c %D%/composition.h \
    tests/nn/parallel_case.c tests/nn/parallel_case.h


## Needs 4.5 GB of disk, so it runs on request only; see the script.
check_PROGRAMS += %D%/offload_large
%C%_offload_large_LDADD = libfsdp.la
check-offload: %D%/offload_large$(EXEEXT)
	$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)' $(SHELL) \
	    $(srcdir)/tests/cli/offload-large.sh

## What PyTorch's own tests assert: tests/conformance.md says which is which.
fsdp_twin = %D%/twin.c %D%/twin_reduce.c %D%/twin.h $(fsdp_net) $(fsdp_golden)
suites += \
    %D%/test_accumulation \
    %D%/test_comm \
    %D%/test_divide \
    %D%/test_frozen \
    %D%/test_init \
    %D%/test_memory \
    %D%/test_mixed_precision \
    %D%/test_modules \
    %D%/test_placement \
    %D%/test_schedule \
    %D%/test_state_dict \
    %D%/test_training
%C%_test_accumulation_SOURCES = %D%/test_accumulation.c $(fsdp_twin)
%C%_test_comm_SOURCES = %D%/test_comm.c $(fsdp_twin)
%C%_test_divide_SOURCES = %D%/test_divide.c $(fsdp_twin)
%C%_test_frozen_SOURCES = %D%/test_frozen.c $(fsdp_twin)
%C%_test_init_SOURCES = %D%/test_init.c $(fsdp_twin)
%C%_test_memory_SOURCES = %D%/test_memory.c $(fsdp_twin)
%C%_test_mixed_precision_SOURCES = %D%/test_mixed_precision.c $(fsdp_twin)
%C%_test_modules_SOURCES = %D%/test_modules.c $(fsdp_twin)
%C%_test_placement_SOURCES = %D%/test_placement.c $(fsdp_twin)
%C%_test_schedule_SOURCES = %D%/test_schedule.c $(fsdp_twin)
%C%_test_state_dict_SOURCES = %D%/test_state_dict.c $(fsdp_twin)
%C%_test_training_SOURCES = %D%/test_training.c $(fsdp_twin)

## Runs that must end badly.
check_PROGRAMS += %D%/misuse
%C%_misuse_SOURCES = %D%/misuse.c $(fsdp_net)
%C%_misuse_LDADD = libfsdp.la
TESTS += %D%/misuse.sh
EXTRA_DIST += %D%/misuse.sh

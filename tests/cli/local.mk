## Scripts that run the program.
TESTS += \
    %D%/bad_input.sh \
    %D%/combinations.sh \
    %D%/folder.sh \
    %D%/compare.sh \
    %D%/golden.sh \
    %D%/experts.sh \
    %D%/inject.sh \
    %D%/learn.sh \
    %D%/llama.sh \
    %D%/log.sh \
    %D%/plan.sh \
    %D%/program.sh \
    %D%/resume.sh \
    %D%/save.sh \
    %D%/shrink.sh \
    %D%/splits.sh \
    %D%/tokens.sh \
    %D%/trace.sh \
    %D%/verified.sh
EXTRA_DIST += \
    %D%/bad_input.sh \
    %D%/combinations.sh \
    %D%/folder.sh \
    %D%/compare.sh \
    %D%/golden.sh \
    %D%/experts.sh \
    %D%/inject.sh \
    %D%/learn.sh \
    %D%/kills.sh \
    %D%/llama.sh \
    %D%/log.sh \
    %D%/offload-large.sh \
    %D%/plan.sh \
    %D%/program.sh \
    %D%/resume.sh \
    %D%/resume-matrix.sh \
    %D%/run.sh \
    %D%/save.sh \
    %D%/shrink.sh \
    %D%/splits.sh \
    %D%/tokens.sh \
    %D%/trace.sh \
    %D%/verified.sh

## A large draw of combinations: make check-combinations N=200 SEED=7
check-combinations: fsdp$(EXEEXT) data/stories.txt
	$(AM_TESTS_ENVIRONMENT) : "$${N=100}" "$${SEED=2}"; export N SEED; \
	srcdir=$(srcdir) $(SHELL) $(srcdir)/%D%/combinations.sh
.PHONY: check-combinations

## Checkpoints from and to every strategy and number of ranks
check-resume: fsdp$(EXEEXT) data/stories.txt
	$(AM_TESTS_ENVIRONMENT) \
	srcdir=$(srcdir) $(SHELL) $(srcdir)/%D%/resume-matrix.sh
.PHONY: check-resume

## Ranks killed at random moments: make check-kills N=200
check-kills: fsdp$(EXEEXT)
	$(AM_TESTS_ENVIRONMENT) : "$${N=200}" "$${SEED=1}"; export N SEED; \
	srcdir=$(srcdir) $(SHELL) $(srcdir)/%D%/kills.sh
.PHONY: check-kills

suites += %D%/test_plan
%C%_test_plan_SOURCES = %D%/test_plan.c $(plan_sim)

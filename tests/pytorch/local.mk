## PyTorch live, against this library: not part of make check, as few have
## PyTorch 2.13.  make check-pytorch PYTHON=/venv/bin/python CASES="gpt2-3 mlp-1"
EXTRA_DIST += \
    %D%/cases.py \
    %D%/check-pytorch.sh \
    %D%/check_pytorch.py \
    %D%/hf_files.py \
    %D%/seeded/faults.py \
    %D%/seeded/run.py \
    %D%/seeded/script.py \
    %D%/seeded/variants.py \
    %D%/train.py

check-pytorch: fsdp$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) \
	PYTHON='$(PYTHON)' CASES='$(CASES)' srcdir=$(srcdir) \
	$(SHELL) $(srcdir)/%D%/check-pytorch.sh
.PHONY: check-pytorch

## Faults put into training scripts of PyTorch, each to be found where it is, and
## what is right, to be called so: some five minutes.  make check-seeded ONLY=norm
## Six of them are part of check-pytorch.
check-seeded: fsdp$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) \
	python=$${PYTHON:-$${FSDP_PYTHON:-python3}}; \
	command -v "$$python" >/dev/null || \
	    { echo "check-seeded: skipped: there is no $$python"; exit 0; }; \
	PYTHONDONTWRITEBYTECODE=1 "$$python" $(srcdir)/%D%/seeded/run.py \
	    --fsdp ./fsdp$(EXEEXT) --mpiexec '$(MPIEXEC)' --only '$(ONLY)' || \
	    test $$? = 77
.PHONY: check-seeded

## PyTorch live, against this library: not part of make check, as few have
## PyTorch 2.13.  make check-pytorch PYTHON=/venv/bin/python CASES="gpt2-3 mlp-1"
EXTRA_DIST += \
    %D%/cases.py \
    %D%/check_pytorch.py \
    %D%/train.py

check-pytorch: fsdp$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) \
	python=$${PYTHON:-$${FSDP_PYTHON:-python3}}; \
	command -v "$$python" >/dev/null || \
	    { echo "check-pytorch: skipped: there is no $$python"; exit 0; }; \
	PYTHONDONTWRITEBYTECODE=1 "$$python" $(srcdir)/%D%/check_pytorch.py \
	    --fsdp ./fsdp$(EXEEXT) --mpiexec '$(MPIEXEC)' $(CASES) || \
	    test $$? = 77
.PHONY: check-pytorch

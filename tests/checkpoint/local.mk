## Suites of src/checkpoint, one word each: a suite %D%/test_x is built from
## %D%/test_x.c alone.  See tests/local.mk.
suites += \
    %D%/test_checkpoint \
    %D%/test_hf_config \
    %D%/test_hf_folder \
    %D%/test_model_load \
    %D%/test_model_save \
    %D%/test_safetensors \
    %D%/test_safetensors_failing \
    %D%/test_safetensors_writer

model_case = \
    %D%/model_case.c %D%/model_case.h \
    tests/optim/given.c tests/optim/given.h
%C%_test_checkpoint_SOURCES = %D%/test_checkpoint.c $(model_case)
%C%_test_hf_folder_SOURCES = %D%/test_hf_folder.c $(model_case)
%C%_test_model_load_SOURCES = %D%/test_model_load.c $(model_case)
%C%_test_model_save_SOURCES = %D%/test_model_save.c $(model_case)

safetensors_case = %D%/safetensors_case.c %D%/safetensors_case.h
%C%_test_safetensors_failing_SOURCES = \
    %D%/test_safetensors_failing.c $(safetensors_case)
%C%_test_safetensors_writer_SOURCES = \
    %D%/test_safetensors_writer.c $(safetensors_case)

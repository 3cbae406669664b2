## Suites of src/verify.  See tests/local.mk.
suites += \
    %D%/test_contract \
    %D%/test_diagnosis \
    %D%/test_diagnosis_update \
    %D%/test_faults \
    %D%/test_other_attention \
    %D%/test_parts \
    %D%/test_record \
    %D%/test_replicas \
    %D%/test_rerun \
    %D%/test_runs \
    %D%/test_trace \
    %D%/test_verdict

trainer = %D%/trainer.c %D%/trainer.h
%C%_test_faults_SOURCES = %D%/test_faults.c $(trainer)
%C%_test_runs_SOURCES = %D%/test_runs.c $(trainer)
%C%_test_replicas_SOURCES = %D%/test_replicas.c $(trainer)
%C%_test_trace_SOURCES = %D%/test_trace.c %D%/hand_trace.c %D%/hand_trace.h
%C%_test_record_SOURCES = %D%/test_record.c %D%/hand_trace.c %D%/hand_trace.h
%C%_test_verdict_SOURCES = %D%/test_verdict.c %D%/hand_trace.c %D%/hand_trace.h
%C%_test_rerun_SOURCES = %D%/test_rerun.c %D%/hand_trace.c %D%/hand_trace.h

## Suites of src/verify.  See tests/local.mk.
suites += \
    %D%/test_contract \
    %D%/test_diagnosis \
    %D%/test_diagnosis_tokens \
    %D%/test_diagnosis_update \
    %D%/test_faults \
    %D%/test_other_attention \
    %D%/test_parts \
    %D%/test_record \
    %D%/test_record_replay \
    %D%/test_replicas \
    %D%/test_rerun \
    %D%/test_runs \
    %D%/test_trace \
    %D%/test_trace_refused \
    %D%/test_verdict \
    %D%/test_verdict_match \
    %D%/test_verdict_update

trainer = %D%/trainer.c %D%/trainer.h
%C%_test_faults_SOURCES = %D%/test_faults.c $(trainer)
%C%_test_runs_SOURCES = %D%/test_runs.c $(trainer)
%C%_test_replicas_SOURCES = %D%/test_replicas.c $(trainer)
hand = %D%/hand_trace.c %D%/hand_trace.h
sound = %D%/sound_trace.c %D%/sound_trace.h $(hand)
%C%_test_trace_SOURCES = %D%/test_trace.c $(sound)
%C%_test_trace_refused_SOURCES = %D%/test_trace_refused.c $(sound)
recorded = %D%/recorded_run.c %D%/recorded_run.h $(hand)
%C%_test_record_SOURCES = %D%/test_record.c $(recorded)
%C%_test_record_replay_SOURCES = %D%/test_record_replay.c $(recorded)
sides = %D%/verdict_sides.c %D%/verdict_sides.h $(hand)
%C%_test_verdict_SOURCES = %D%/test_verdict.c $(sides)
%C%_test_verdict_match_SOURCES = %D%/test_verdict_match.c $(sides)
%C%_test_verdict_update_SOURCES = %D%/test_verdict_update.c $(sides)
%C%_test_rerun_SOURCES = %D%/test_rerun.c $(hand)

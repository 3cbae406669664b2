## Suites of src/nn, one word each: a suite %D%/test_x is built from
## %D%/test_x.c alone.  See tests/local.mk.
suites += \
    %D%/test_differences

nn_case = %D%/nn_case.c %D%/nn_case.h %D%/nn_operators.c
%C%_test_differences_SOURCES = \
    %D%/test_differences.c %D%/differences.h %D%/rounding.h $(nn_case)

suites += %D%/test_golden_operators
%C%_test_golden_operators_SOURCES = \
    %D%/test_golden_operators.c %D%/golden.h $(nn_case) \
    %D%/operator_bounds.c %D%/operator_bounds.h \
    tests/twin/attention.c tests/twin/attention.h tests/twin/attention_bound.c

suites += %D%/test_golden_training
%C%_test_golden_training_SOURCES = \
    %D%/test_golden_training.c %D%/golden.h \
    %D%/training.c %D%/training.h

suites += \
    %D%/test_dropout \
    %D%/test_graph \
    %D%/test_initial_values \
    %D%/test_losses \
    %D%/test_refusals
%C%_test_dropout_SOURCES = %D%/test_dropout.c %D%/small_gpt2.h $(nn_case)
%C%_test_graph_SOURCES = %D%/test_graph.c %D%/small_gpt2.h $(nn_case)
%C%_test_initial_values_SOURCES = %D%/test_initial_values.c %D%/golden.h
%C%_test_losses_SOURCES = %D%/test_losses.c $(nn_case)
%C%_test_refusals_SOURCES = %D%/test_refusals.c $(nn_case)

suites += %D%/test_checkpoint_graphs
%C%_test_checkpoint_graphs_SOURCES = %D%/test_checkpoint_graphs.c $(nn_case)

suites += %D%/test_activation_checkpoint
%C%_test_activation_checkpoint_SOURCES = \
    %D%/test_activation_checkpoint.c %D%/small_gpt2.h $(nn_case)

suites += %D%/test_half
%C%_test_half_SOURCES = \
    %D%/test_half.c $(nn_case) %D%/half_bounds.c %D%/half_bounds.h \
    %D%/operator_bounds.c %D%/operator_bounds.h \
    tests/twin/attention.c tests/twin/attention.h tests/twin/attention_bound.c
suites += %D%/test_half_models
%C%_test_half_models_SOURCES = %D%/test_half_models.c %D%/small_gpt2.h $(nn_case)

parallel_case = %D%/parallel_case.c %D%/parallel_case.h
suites += %D%/test_tensor_parallel
%C%_test_tensor_parallel_SOURCES = \
    %D%/test_tensor_parallel.c $(parallel_case) $(nn_case)

suites += %D%/test_llama
%C%_test_llama_SOURCES = %D%/test_llama.c %D%/golden.h $(nn_case)
suites += %D%/test_moe
%C%_test_moe_SOURCES = %D%/test_moe.c %D%/differences.h $(nn_case)
suites += %D%/test_parallel_sums
%C%_test_parallel_sums_SOURCES = \
    %D%/test_parallel_sums.c %D%/differences.h $(parallel_case) $(nn_case)


golden_half = \
    %D%/golden.h %D%/golden_half.h $(nn_case) \
    %D%/half_bounds.c %D%/half_bounds.h \
    %D%/operator_bounds.c %D%/operator_bounds.h \
    tests/twin/attention.c tests/twin/attention.h tests/twin/attention_bound.c
suites += \
    %D%/test_golden_half \
    %D%/test_golden_half_training
%C%_test_golden_half_SOURCES = %D%/test_golden_half.c $(golden_half)
%C%_test_golden_half_training_SOURCES = \
    %D%/test_golden_half_training.c $(golden_half)

suites += %D%/test_golden_composed
%C%_test_golden_composed_SOURCES = \
    %D%/test_golden_composed.c %D%/golden.h $(nn_case)

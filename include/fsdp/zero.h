/** \file zero.h  Floor 3, fsdp: the stages of the ZeRO paper, side by side.
 *
 *  Rajbhandari, Rasley, Ruwase, He: "ZeRO: Memory Optimizations Toward Training
 *  Trillion Parameter Models" (2020).  PyTorch: DistributedDataParallel and
 *  ZeroRedundancyOptimizer; stage 3 is FSDP.
 *
 *  What a rank of W keeps of Psi parameters, and what it sends a step (one
 *  backward), in elements times (W - 1) / W:
 *
 *             parameters  gradients  optimizer  sends
 *      DDP        Psi        Psi        all     2 Psi  all-reduce
 *      ZeRO-1     Psi        Psi       1 / W    2 Psi  reduce-scatter, and
 *      ZeRO-2     Psi       Psi / W    1 / W    2 Psi  all-gather of updates
 *      ZeRO-3   Psi / W     Psi / W    1 / W    3 Psi  two all-gathers and a
 *                                                      reduce-scatter
 *
 *  All four are units of FSDP1 (fully_sharded_data_parallel.h), whose padding
 *  to a multiple of W comes on top.  (ZeRO-3's root unit is gathered once, not
 *  twice: FULL_SHARD keeps it.)
 */
#ifndef FSDP_ZERO_H
#define FSDP_ZERO_H

#include "fsdp/fully_sharded_data_parallel.h"

typedef enum fsdp_zero_stage {
    FSDP_DDP,
    FSDP_ZERO1,
    FSDP_ZERO2,
    FSDP_ZERO3
} fsdp_zero_stage_t;

/** "ddp", "zero1", "zero2", "zero3". */
const char *fsdp_zero_stage_name(fsdp_zero_stage_t stage);
bool fsdp_zero_stage_from_name(const char *name, fsdp_zero_stage_t *stage);

/** fsdp_fully_sharded_data_parallel() with the strategy replaced by the stage;
 *  the mesh has one dimension.  Bottom-up, all units of a model alike, or with
 *  a policy.  Errors and collectivity as there; a hybrid strategy in the
 *  options, and units of another stage below, are errors too. */
fsdp_status_t fsdp_zero(fsdp_module_t *module, fsdp_zero_stage_t stage,
                        const fsdp1_options_t *options);

/** After each optimizer step (or a step that was skipped), before gradients are
 *  forgotten or after: gathers what the ranks have updated, one all-gather a
 *  unit.  Nothing happens for DDP and ZeRO-3, so that one training loop serves
 *  all stages.  A forward that finds it forgotten ends the program.  Collective
 *  over the mesh.  PyTorch: ZeroRedundancyOptimizer.step(), its second half. */
void fsdp_zero_gather_parameters(fsdp_module_t *root);

#endif

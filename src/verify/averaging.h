/** \file averaging.h  Floor 6, verify: how the mean is made of a sum.
 *
 *  The specification's table, written down once more, for the baseline.
 */
#ifndef FSDP_VERIFY_AVERAGING_H
#define FSDP_VERIFY_AVERAGING_H

#include "fsdp/fully_shard.h"

/** What an element meets on its way, in this order; 1: nothing. */
typedef struct averaging {
    double times;         /**< each rank's term, by this ...                 */
    double over;          /**< ... or divided by this                        */
    double over_shards;   /**< the sum over shard ranks, divided             */
    double times_replica; /**< each replica's term                           */
    double over_replica;  /**< ... or divided by this                        */
    double over_all;      /**< the sum over the replicas, divided            */
} averaging_t;

/** `type` is that of the sums, `factor` the user's, 0: none. */
averaging_t averaging_make(fsdp_averaging_t averaging, fsdp_dtype_t type,
                           int shards, int replicas, double factor,
                           bool force_sum);

/** What the exact sum would be divided by in all. */
double averaging_total(const averaging_t *averaging);

#endif

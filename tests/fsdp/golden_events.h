/** \file golden_events.h  What PyTorch 2.13 did, and in which order
 *  (data/golden/fsdp_events.json), beside what happens here. */
#ifndef TESTS_FSDP_GOLDEN_EVENTS_H
#define TESTS_FSDP_GOLDEN_EVENTS_H

#include <stdbool.h>
#include <stddef.h>

/** Fixtures: the record is read, and freed. */
void golden_read(void);
void golden_free(void);
/** Begins or ends to take events down. */
void golden_watch(bool on);
/** Is what has happened since the last call a phase of the record?  Fails the
 *  test at the first difference. */
void golden_expect(const char *scenario, const char *phase);

/** Row i of PyTorch's shards: a parameter [shape[0], shape[1]] (1 if it has one
 *  dim) on `world_size` ranks, of which `rank` gets local[] rows and columns,
 *  padded to padded[].  False: there are no more. */
bool golden_shard(size_t i, int rank, int *world_size, size_t shape[2],
                  size_t local[2], size_t padded[2]);

#endif

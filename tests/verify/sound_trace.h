/** \file sound_trace.h  A trace of two ranks, written by hand, with nothing wrong. */
#ifndef SOUND_TRACE_H
#define SOUND_TRACE_H

#include "fsdp/trace.h"

/** Into a new folder; hand_trace_end() takes it away. */
void put_sound(void);
fsdp_trace_t *open_sound(void);

#endif

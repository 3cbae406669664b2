/** \file events.h  Floor 3, fsdp: what happened, for tests and verifications.
 */
#ifndef FSDP_EVENTS_H
#define FSDP_EVENTS_H

#include "fsdp/parameter.h"

typedef enum fsdp_event_kind {
    FSDP_EVENT_UNSHARD, /**< an all-gather begins                       */
    FSDP_EVENT_WAIT_FOR_UNSHARD, /**< its result is copied out                */
    FSDP_EVENT_RESHARD, /**< gathered parameters are freed              */
    FSDP_EVENT_REDUCE_SCATTER,
    FSDP_EVENT_ALL_REDUCE,    /**< over the replicas                          */
    FSDP_EVENT_POST_BACKWARD, /**< a post-backward returns                    */
    FSDP_EVENT_KINDS
} fsdp_event_kind_t;

typedef enum fsdp_training_state {
    FSDP_STATE_IDLE,
    FSDP_STATE_FORWARD,
    FSDP_STATE_PRE_BACKWARD,
    FSDP_STATE_POST_BACKWARD
} fsdp_training_state_t;

typedef struct fsdp_event {
    fsdp_event_kind_t kind;
    const char *unit; /**< the group's name; "" is the root's. Borrowed       */
    fsdp_training_state_t state;
} fsdp_event_t;

/** Called at each event; PyTorch's tests patch its methods for the same end. */
void fsdp_set_event_hook(void (*hook)(void *context, const fsdp_event_t *event),
                         void *context);

/** What a verification or a recording may look at while it exists; each may be
 *  NULL. */
typedef struct fsdp_observer {
    void *context;
    /** after each all-gather: the whole parameter (or part), as this rank has
     *  it, in its data_dtype */
    void (*gathered)(void *context, fsdp_parameter_t *parameter,
                     const void *data);
    /** before each reduction, or before it is added up without one: this rank's
     *  own gradient of one backward, whole (or part), in its data_dtype */
    void (*unreduced)(void *context, fsdp_parameter_t *parameter,
                      const void *grad);
    /** after each reduction: this rank's elements of the reduced and divided
     *  gradient, in the parameter's dtype, laid out as in local.h */
    void (*reduced)(void *context, fsdp_parameter_t *parameter,
                    const void *grad);
} fsdp_observer_t;

enum { FSDP_MAX_OBSERVERS = 4 };

/** Up to four look on, in the order in which they came.  The struct is copied. */
void fsdp_add_observer(const fsdp_observer_t *observer);
/** Takes those with that context away. */
void fsdp_remove_observer(const void *context);

#endif

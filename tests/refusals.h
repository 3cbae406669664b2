/** \file refusals.h  Suites of what must end the program with a message.
 *
 *  Each case runs in a child, which ends alone, so the suite is for one rank:
 *  its source has the line with "Ranks: 1".
 */
#ifndef REFUSALS_H
#define REFUSALS_H

typedef struct refusal {
    void (*run)(void);
    const char *message; /**< a part of it                                   */
} refusal_t;

/** What main() returns: every case ends with FSDP_EXIT_FAULT and its message. */
int refusals_run(int argc, char **argv, const char *suite,
                 const refusal_t *cases, int count);

#endif

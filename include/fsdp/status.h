/** \file status.h  Floor 0, base: status codes, checks and the way out.
 *
 *  Two kinds of failure are kept apart.
 *  - A user's mistake, which every rank sees alike: the function returns an
 *    fsdp_status_t and leaves a message for fsdp_error_message().
 *  - A broken invariant, a failing MPI call, no memory: FSDP_CHECK() prints one
 *    message that names the rank, and ends all ranks with FSDP_EXIT_FAULT.
 */
#ifndef FSDP_STATUS_H
#define FSDP_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/** name, text, exit status of a program that ends because of it */
#define FSDP_STATUS_LIST(X)                                                    \
    X(FSDP_OK, "success", 0)                                                   \
    X(FSDP_ERR_VERIFY, "the verification failed", 1)                           \
    X(FSDP_ERR_USAGE, "bad usage", 2)                                          \
    X(FSDP_ERR_INPUT, "bad input", 2)                                          \
    X(FSDP_ERR_IO, "a file cannot be read or written", 2)                      \
    X(FSDP_ERR_FAULT, "a fault at run time", 3)

typedef enum fsdp_status {
#define FSDP_STATUS_ENUM(name, text, code) name,
    FSDP_STATUS_LIST(FSDP_STATUS_ENUM)
#undef FSDP_STATUS_ENUM
} fsdp_status_t;

enum { FSDP_EXIT_VERIFY = 1, FSDP_EXIT_USAGE = 2, FSDP_EXIT_FAULT = 3 };

/** The text of a status; never NULL. */
const char *fsdp_status_string(fsdp_status_t status);

/** The exit status that a program ending with `status` should have. */
int fsdp_status_exit_code(fsdp_status_t status);

/** Keeps a message for fsdp_error_message() and returns `status`, so that a
 *  function can end with `return fsdp_error(FSDP_ERR_USAGE, "...", ...)`.
 *  The message says what is wrong and what to do; no trailing newline. */
fsdp_status_t fsdp_error(fsdp_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** The message of the last fsdp_error() of this process; "" if there was none.
 *  Valid until the next fsdp_error(). */
const char *fsdp_error_message(void);

/** Prints "fsdp: rank R: message" to stderr as one write and ends all ranks
 *  with the exit status `code`.  Does not return. */
_Noreturn void fsdp_die(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Always compiled in.  On failure: place, condition, message, end of all
 *  ranks.  No side effects in `cond`. */
#define FSDP_CHECK(cond, ...)                                                  \
    do {                                                                       \
        if (__builtin_expect(!(cond), 0))                                      \
            fsdp_check_failed(__FILE__, __LINE__, #cond, __VA_ARGS__);         \
    } while (0)

/** "fsdp: warning: ..." on standard error, in one piece, from this process; the
 *  caller says which rank it is if that matters. */
void fsdp_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** "fsdp: ..." with the last error's message, the same way. */
void fsdp_print_error(void);

_Noreturn void fsdp_check_failed(const char *file, int line, const char *cond,
                                 const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Tells base which rank this process is and how to end all ranks
 *  (`end_all(code)` must not return).  Called by fsdp_init(); before that
 *  messages carry no rank and the process ends alone.  Only the rank that
 *  dies prints; a rank < 0 means "unknown". */
void fsdp_set_process(int rank, void (*end_all)(int code));

/** Has `ask` called before the last message is printed.  It returns in the
 *  process that may speak for the run and waits for the end in all others, so
 *  that a failure which all ranks meet is told once.  NULL: all may speak. */
void fsdp_set_speaker(void (*ask)(void));

#endif

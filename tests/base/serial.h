/** \file serial.h  What the suites of src/base share: they need no MPI, and
 *  look at how a process ends.
 */
#ifndef SERIAL_H
#define SERIAL_H

#include <check.h>
#include <stdbool.h>

/** Runs a suite in this process; what main() returns.  Fails if a test failed,
 *  none was run, or a block of memory is left. */
int serial_run(Suite *suite);

/** How a process ended, and what it had said. */
typedef struct ending {
    int status;        /**< the exit status, or 128 + signal                  */
    int writes;        /**< number of writes to stderr                        */
    char said[16384];  /**< what was written to stderr                        */
    char printed[256]; /**< what was written to stdout                        */
} ending_t;

/** Calls `body` in a child of this process, which ends with status 0 if `body`
 *  returns. */
ending_t serial_ending_of(void (*body)(void));

/** Is this program built with AddressSanitizer, which ends a process in its own
 *  way before our checks see the mistake? */
bool serial_has_sanitizer(void);

#endif

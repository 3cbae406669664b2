/* The table of names that the user gives: lines "theirs ours", # begins a
 * comment, and one * in each stands for the same text. */

#include <stdio.h>
#include <string.h>

#include "base/whole_file.h"
#include "verify/verdict/internal.h"

enum { MAX_BYTES = 16 << 20 };

static char *
copy_of(const char *text, size_t length)
{
    char *copy = fsdp_alloc(FSDP_MEM_OTHER, length + 1);
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

static void
append(rename_table_t *table, rename_rule_t rule)
{
    size_t n = table->count;
    if ((n & (n - 1)) == 0) { /* full: 0, 1, 2, 4, 8 ... */
        size_t room = n > 0 ? 2 * n : 1;
        rename_rule_t *list = fsdp_alloc(FSDP_MEM_OTHER, room * sizeof *list);
        if (n > 0)
            memcpy(list, table->rule, n * sizeof *list);
        fsdp_free(table->rule);
        table->rule = list;
    }
    table->rule[table->count++] = rule;
}

static int
count_of(const char *text, char c)
{
    int count = 0;
    for (; *text != '\0'; text++)
        count += *text == c;
    return count;
}

static fsdp_status_t
bad_line(const char *path, int line, const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT, "%s, line %d: %s", path, line, what);
}

/* One line, without its end. */
static fsdp_status_t
read_line(const char *path, int line, char *text, rename_table_t *table)
{
    static const char space[] = " \t\r";
    char *comment = strchr(text, '#');
    /* "h.0#1" is a name: a comment begins the line or follows a space */
    while (comment != NULL && comment != text &&
           strchr(space, comment[-1]) == NULL)
        comment = strchr(comment + 1, '#');
    if (comment != NULL)
        *comment = '\0';
    char *rest = NULL;
    const char *theirs = strtok_r(text, space, &rest);
    if (theirs == NULL)
        return FSDP_OK;
    const char *ours = strtok_r(NULL, space, &rest);
    if (ours == NULL || strtok_r(NULL, space, &rest) != NULL)
        return bad_line(path, line,
                        "two names are needed, theirs and ours, with a space "
                        "between them");
    if (count_of(theirs, '*') > 1 ||
        count_of(theirs, '*') != count_of(ours, '*'))
        return bad_line(path, line,
                        "one * may stand in theirs, and then one in ours");
    append(table, (rename_rule_t){copy_of(theirs, strlen(theirs)),
                                  copy_of(ours, strlen(ours)), line});
    return FSDP_OK;
}

fsdp_status_t
rename_table_read(const char *path, rename_table_t *table)
{
    char *text;
    size_t length;
    *table = (rename_table_t){0};
    fsdp_status_t status = fsdp_file_read(path, MAX_BYTES, &text, &length);
    if (status != FSDP_OK)
        return status;
    if (memchr(text, '\0', length) != NULL)
        status = fsdp_error(FSDP_ERR_INPUT,
                            "%s: not a text: it has a zero byte", path);
    int line = 1;
    for (size_t at = 0; status == FSDP_OK && at < length; line++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t n = end != NULL ? (size_t)(end - text) - at : length - at;
        char *one = copy_of(text + at, n);
        status = read_line(path, line, one, table);
        fsdp_free(one);
        at += n + 1;
    }
    fsdp_free(text);
    if (status == FSDP_OK && table->count == 0)
        status = fsdp_error(FSDP_ERR_INPUT, "%s: it renames nothing", path);
    return status;
}

void
rename_table_free(rename_table_t *table)
{
    for (size_t i = 0; i < table->count; i++) {
        fsdp_free(table->rule[i].theirs);
        fsdp_free(table->rule[i].ours);
    }
    fsdp_free(table->rule);
    *table = (rename_table_t){0};
}

bool
rename_table_apply(const rename_table_t *table, size_t i, const char *theirs,
                   char *ours, size_t size)
{
    const rename_rule_t *rule = &table->rule[i];
    const char *star = strchr(rule->theirs, '*');
    int length;
    if (star == NULL) {
        if (strcmp(rule->theirs, theirs) != 0)
            return false;
        length = snprintf(ours, size, "%s", rule->ours);
        return length >= 0 && (size_t)length < size;
    }
    size_t before = (size_t)(star - rule->theirs), after = strlen(star + 1);
    size_t all = strlen(theirs);
    if (all < before + after || memcmp(theirs, rule->theirs, before) != 0 ||
        memcmp(theirs + all - after, star + 1, after) != 0)
        return false;
    const char *place = strchr(rule->ours, '*');
    length = snprintf(ours, size, "%.*s%.*s%s", (int)(place - rule->ours),
                      rule->ours, (int)(all - before - after), theirs + before,
                      place + 1);
    return length >= 0 && (size_t)length < size;
}

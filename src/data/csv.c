/* A table of numbers with a class in one column. */

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "fsdp/memory.h"

enum { MAX_CLASSES = 65536 };

/* A file while it is read. */
typedef struct reader {
    const char *path;
    char *at;       /**< what has not been read yet                        */
    size_t line;    /**< of `at`, from 1                                   */
    size_t columns; /**< of the first row of numbers; 0: none yet          */
    double *cell;   /**< [rows, columns]                                   */
    size_t rows, room;
    int wanted;        /**< the label's column; -1: the last                  */
    size_t label;      /**< the same, when `columns` is known                 */
    locale_t c_locale; /**< so that a decimal comma never counts             */
} reader_t;

/* Shows the first bytes of the field too, as far as they can be printed. */
static fsdp_status_t
bad_field(const reader_t *reader, size_t column, const char *field,
          size_t length, const char *what)
{
    char shown[24];
    size_t n = length < sizeof shown ? length : sizeof shown - 1;
    for (size_t i = 0; i < n; i++)
        shown[i] = field[i] >= ' ' && field[i] <= '~' ? field[i] : '?';
    shown[n] = '\0';
    return fsdp_error(FSDP_ERR_INPUT,
                      "data file %s, line %zu, column %zu: \"%s\" is %s; a "
                      "CSV file of plain numbers, without quotes, is needed",
                      reader->path, reader->line, column + 1, shown, what);
}

/* False if the field is not one number and nothing else; of what strtod() lets
 * pass that is hexadecimal and a carriage return amid a line. */
static bool
parse_number(const reader_t *reader, char *field, size_t length, double *value)
{
    char saved = field[length], *end;
    field[length] = '\0';
    *value = strtod_l(field, &end, reader->c_locale);
    bool good = end != field;
    while (*end == ' ' || *end == '\t')
        end++;
    good = good && *end == '\0' && strpbrk(field, "xX\r\v\f") == NULL;
    field[length] = saved;
    return good;
}

static void
make_room(reader_t *reader, size_t columns)
{
    size_t needed = (reader->rows + 1) * columns;
    if (needed <= reader->room)
        return;
    size_t room = 2 * needed + 1024;
    double *grown = fsdp_alloc(FSDP_MEM_OTHER, room * sizeof *grown);
    if (reader->rows > 0)
        memcpy(grown, reader->cell, reader->rows * columns * sizeof *grown);
    fsdp_free(reader->cell);
    reader->cell = grown;
    reader->room = room;
}

static size_t
count_fields(const char *line, size_t length)
{
    size_t fields = 1;
    for (size_t i = 0; i < length; i++)
        fields += line[i] == ',';
    return fields;
}

static size_t
field_length(const char *field, const char *end)
{
    const char *comma = memchr(field, ',', (size_t)(end - field));
    return (size_t)((comma != NULL ? comma : end) - field);
}

static fsdp_status_t
take_first_row(reader_t *reader, size_t columns)
{
    reader->columns = columns;
    reader->label = reader->wanted < 0 ? columns - 1 : (size_t)reader->wanted;
    if (columns < 2)
        return fsdp_error(FSDP_ERR_INPUT,
                          "data file %s, line %zu has one column; a label and "
                          "at least one feature, between commas, are needed",
                          reader->path, reader->line);
    if (reader->label >= columns)
        return fsdp_error(FSDP_ERR_INPUT,
                          "data file %s has %zu columns: there is no label "
                          "column %d; --label-column takes 0 to %zu, or -1 "
                          "for the last",
                          reader->path, columns, reader->wanted, columns - 1);
    return FSDP_OK;
}

static fsdp_status_t
parse_field(const reader_t *reader, size_t column, char *field, size_t length,
            double *value)
{
    const char *what = NULL;
    if (!parse_number(reader, field, length, value))
        what = "no number";
    else if (!isfinite(*value))
        what = "NaN, infinity or too large a number";
    else if (column == reader->label &&
             (*value != floor(*value) || *value < 0 || *value >= MAX_CLASSES))
        what = "no label, which is a whole number from 0 to 65535 (see "
               "--label-column)";
    if (what == NULL)
        return FSDP_OK;
    return bad_field(reader, column, field, length, what);
}

static fsdp_status_t
parse_row(reader_t *reader, char *line, size_t length)
{
    size_t columns = count_fields(line, length);
    fsdp_status_t status = FSDP_OK;
    if (reader->columns == 0)
        status = take_first_row(reader, columns);
    if (status != FSDP_OK)
        return status;
    if (columns != reader->columns)
        return fsdp_error(FSDP_ERR_INPUT,
                          "data file %s, line %zu has %zu columns, the first "
                          "row has %zu; every row needs the same number",
                          reader->path, reader->line, columns, reader->columns);
    make_room(reader, columns);
    double *cell = reader->cell + reader->rows * columns;
    char *end = line + length;
    for (size_t c = 0; c < columns && status == FSDP_OK; c++) {
        size_t n = field_length(line, end);
        status = parse_field(reader, c, line, n, &cell[c]);
        line += n + 1;
    }
    reader->rows++;
    return status;
}

/* A first line whose first field is no number names the columns. */
static bool
is_header(const reader_t *reader, char *line, size_t length)
{
    double ignored;
    size_t n = field_length(line, line + length);
    return reader->line == 1 && !parse_number(reader, line, n, &ignored);
}

static fsdp_status_t
parse_lines(reader_t *reader, size_t length)
{
    char *end = reader->at + length;
    fsdp_status_t status = FSDP_OK;
    if (strncmp(reader->at, "\xef\xbb\xbf", 3) == 0) /* byte-order mark */
        reader->at += 3;
    for (reader->line = 1; reader->at < end && status == FSDP_OK;
         reader->line++) {
        char *line = reader->at;
        char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((stop != NULL ? stop : end) - line);
        reader->at = line + n + 1;
        char *zero = memchr(line, '\0', n);
        if (zero != NULL)
            return bad_field(reader,
                             count_fields(line, (size_t)(zero - line)) - 1,
                             zero, 1, "a zero byte");
        if (n > 0 && line[n - 1] == '\r')
            n--;
        if (n > 0 && !is_header(reader, line, n))
            status = parse_row(reader, line, n);
    }
    return status;
}

/* ---- from cells to a data set ------------------------------------------- */

static void
take_row(fsdp_dataset_t *d, const reader_t *reader, size_t row)
{
    const double *cell = reader->cell + row * reader->columns;
    double *to = d->value + row * d->features;
    for (size_t c = 0; c < reader->columns; c++)
        if (c != reader->label)
            *to++ = cell[c];
    d->label[row] = (int32_t)cell[reader->label];
    if ((size_t)d->label[row] + 1 > d->classes)
        d->classes = (size_t)d->label[row] + 1;
}

static void
scale_features(fsdp_dataset_t *d, size_t rows)
{
    double largest = 0;
    for (size_t i = 0; i < d->count[FSDP_TRAIN]; i++) {
        const double *v = d->value + d->row[FSDP_TRAIN][i] * d->features;
        for (size_t c = 0; c < d->features; c++)
            largest = fmax(largest, fabs(v[c]));
    }
    if (largest == 0)
        return;
    for (size_t i = 0; i < rows * d->features; i++)
        d->value[i] /= largest;
}

static fsdp_status_t
take_cells(fsdp_dataset_t *d, const reader_t *reader)
{
    size_t rows = reader->rows;
    if (rows == 0)
        return fsdp_error(FSDP_ERR_INPUT,
                          "data file %s has no row of numbers; a CSV file of "
                          "plain numbers is needed",
                          reader->path);
    d->features = reader->columns - 1;
    d->value =
        fsdp_alloc(FSDP_MEM_OTHER, rows * d->features * sizeof *d->value);
    d->label = fsdp_alloc(FSDP_MEM_OTHER, rows * sizeof *d->label);
    for (size_t r = 0; r < rows; r++)
        take_row(d, reader, r);
    fsdp_status_t status = fsdp_dataset_deal_rows(d, reader->path, rows);
    if (status != FSDP_OK)
        return status;
    scale_features(d, rows);
    fsdp_dataset_measure_labels(d);
    return FSDP_OK;
}

fsdp_status_t
fsdp_dataset_open_csv(const char *path, int label_column,
                      fsdp_dataset_t **dataset)
{
    reader_t reader = {.path = path, .wanted = label_column};
    char *text;
    size_t length;
    *dataset = NULL;
    fsdp_status_t status = fsdp_data_read_file(path, &text, &length);
    if (status != FSDP_OK)
        return status;

    fsdp_dataset_t *d = fsdp_calloc(FSDP_MEM_OTHER, sizeof *d);
    reader.at = text;
    reader.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    FSDP_CHECK(reader.c_locale != (locale_t)0, "no memory for a locale");
    status = parse_lines(&reader, length);
    if (status == FSDP_OK)
        status = take_cells(d, &reader);
    freelocale(reader.c_locale);
    fsdp_free(reader.cell);
    fsdp_free(text);
    if (status != FSDP_OK)
        fsdp_dataset_close(&d);
    *dataset = d;
    return status;
}

void
fsdp_dataset_csv_sample(const fsdp_dataset_t *dataset, fsdp_split_t split,
                        size_t number, double *features, int32_t *label)
{
    bool bytes = dataset->pixel != NULL;
    FSDP_CHECK((bytes || dataset->value != NULL) &&
                   number < dataset->count[split],
               "row %zu of a table with %zu", number, dataset->count[split]);
    size_t row = dataset->row[split][number];
    size_t first = row * dataset->features;
    for (size_t c = 0; c < dataset->features; c++)
        features[c] = bytes ? dataset->pixel[first + c] / dataset->scale
                            : dataset->value[first + c];
    *label = dataset->label[row];
}

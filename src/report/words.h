/* Numbers as people like to read them: short, of steady width, the same under any locale. Each fits
 * HL_WORDS bytes. */
#ifndef HALLEY_REPORT_WORDS_H
#define HALLEY_REPORT_WORDS_H

#include <stdint.h>

enum { HL_WORDS = 32 };

void hl_words_rate(char out[HL_WORDS],
                   double value); /* 0.0003 -> 3.00e-04: always eight characters */
void hl_words_count(char out[HL_WORDS], double value); /* 873, 12.3k, 4.56M */
void hl_words_duration(char out[HL_WORDS],
                       double seconds); /* 2:14, 3h05m, 2d07h; n/a when negative or NaN */
void hl_words_percent(char out[HL_WORDS],
                      double share); /* 0.714 -> 71%; n/a when negative or NaN */
void hl_words_value(char out[HL_WORDS],
                    double value); /* five significant digits: 3.2145, 123.45, 1.2345e-05 */
void hl_words_integer(char out[HL_WORDS], int64_t value); /* 1,234,567 */

#endif

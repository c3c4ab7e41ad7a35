/* Written by make_optimizers.py with PyTorch 2.13.0: parameters after 100 steps in f64. */
#ifndef HALLEY_GOLDEN_OPTIMIZERS_H
#define HALLEY_GOLDEN_OPTIMIZERS_H

enum { GOLDEN_N = 9, GOLDEN_STEPS = 100 };
static const double golden_adamw[GOLDEN_N] = {
    -0.9547032389713073,
    0.23837793314148778,
    -0.49410478689570353,
    0.6990666209730566,
    -0.05308213812331474,
    -0.8080620123856553,
    0.37897658030726555,
    -0.34223444286811655,
    0.8550823702259437};
/* PyTorch's own f32 run differs from this by at most 1.6e-06. */
static const double golden_adamw_no_decay[GOLDEN_N] = {
    -0.9509509960942266,
    0.2704332063282275,
    -0.4619460668959647,
    0.7418229866557358,
    -0.059872300828069276,
    -0.8673213891954035,
    0.3429217837607079,
    -0.36458445288078095,
    0.8700306562081007};
/* PyTorch's own f32 run differs from this by at most 2.8e-07. */
static const double golden_sgd[GOLDEN_N] = {
    -0.8349881739703124,
    0.23815431771526455,
    -0.5005682183630915,
    0.6737273853860305,
    -0.05301081262381661,
    -0.9585363669935102,
    0.3803633536444047,
    -0.33098841666060663,
    0.8451743750370059};
/* PyTorch's own f32 run differs from this by at most 3.2e-07. */
static const double golden_sgd_momentum[GOLDEN_N] = {
    0.12382654821493326,
    0.24715174251616628,
    -0.31352440689947153,
    0.44147284018576294,
    -0.034704625761086544,
    -1.8643745576394875,
    0.13444917014076677,
    -0.2211773739428707,
    0.5525223763359632};
/* PyTorch's own f32 run differs from this by at most 2.8e-07. */
static const double golden_sgd_nesterov[GOLDEN_N] = {
    -0.06707139549886453,
    0.35236208536465974,
    -0.5111902494018364,
    0.709478881159538,
    -0.05575014757467544,
    -2.45415756426531,
    0.2512027312832843,
    -0.35365906217155285,
    0.8883213189530113};
/* PyTorch's own f32 run differs from this by at most 2.3e-07. */

#endif

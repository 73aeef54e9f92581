/* The bound on the inputs that a short convolution reads. */
#ifndef ORTHOBENCH_CONVOLUTION_H
#define ORTHOBENCH_CONVOLUTION_H

#define MOST_TAPS 8

#endif

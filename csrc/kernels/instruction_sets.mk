# What the kernels are compiled for: the compiler's flags for each instruction set, a set below those that it includes.
# Make includes this file, build.py reads the lines FLAGS_NAME := ...; what a set needs of the processor follows from the
# flags (processor.h).
FLAGS_portable :=
FLAGS_avx2 := -mavx2 -mfma
FLAGS_avx512 := -mavx512f -mavx512dq -mavx512vl -mavx512bw $(FLAGS_avx2) -mprefer-vector-width=512
FLAGS_avx512_bf16 := $(FLAGS_avx512) -mavx512bf16 -mavx512vnni
FLAGS_amx := $(FLAGS_avx512_bf16) -mamx-tile -mamx-bf16

# Those for this kind of machine, the fastest first, and of some of them the first that this very machine can run.
ISAS := $(if $(filter x86_64 amd64,$(shell uname -m)),amx avx512_bf16 avx512 avx2) portable
PROBE := $(dir $(lastword $(MAKEFILE_LIST)))probe.cpp
first_that_runs = $(firstword $(foreach isa,$1,$(shell program=$$(mktemp) && \
  $(CXX) $(FLAGS_$(isa)) -DMB_ISA=$(isa) $(PROBE) -o $$program 2>/dev/null && $$program && echo $(isa); rm -f $$program)))

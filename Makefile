# Thin: what is missing is installed (tools/deps.sh), then CMake's presets do the work.
#   make demo · make test · make bench · make install PREFIX=/usr/local
PRESET ?= release
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
FUZZ_SECONDS ?= 60

build_dir = build/$(PRESET)
# A caller's ccache is used when there is one; CI turns warnings into errors.
cmake_options = $(if $(CI),-DHALLEY_WERROR=ON) $(if $(shell command -v ccache),-DCMAKE_C_COMPILER_LAUNCHER=ccache)

.PHONY: configure build deps test demo bench install clean coverage fuzz soak format

configure: deps
	@cmake --preset $(PRESET) $(cmake_options) -DCMAKE_INSTALL_PREFIX="$(PREFIX)" > $(build_dir).log 2>&1 || { cat $(build_dir).log; exit 1; }

build: configure
	cmake --build --preset $(PRESET) --parallel $(JOBS)

deps:
	@tools/deps.sh $(deps_for)
	@mkdir -p build

test: deps_for = test
test: build
	ctest --preset $(PRESET) --parallel $(JOBS)

# Only the program, not the tests: a newcomer waits for it.
demo: configure
	cmake --build --preset $(PRESET) --target halley --parallel $(JOBS)
	tools/demo.sh

benches: build
	cmake --build --preset $(PRESET) --target benches --parallel $(JOBS)

bench: benches
	bench/run.sh

bench-%: benches
	bench/run.sh $*

install: build
	cmake --install $(build_dir)

coverage:
	@tools/deps.sh coverage
	tools/coverage.sh

fuzz:
	@tools/deps.sh fuzz
	tools/fuzz.sh $(FUZZ_SECONDS)

# Hours rather than minutes: thousands of seeds, all cells of the tables of tests. SOAK=test_name runs one.
soak: build
	tools/soak.sh $(build_dir) $(SOAK)

format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build demo

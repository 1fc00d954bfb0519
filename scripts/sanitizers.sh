#!/usr/bin/env bash
# Runs the tests of the crates that touch registered memory, sockets and threads under
# AddressSanitizer, then ThreadSanitizer, or those of the two that are named (address, thread); then
# the C programs of the verbs' semantics under both.
# ThreadSanitizer has to see the standard library's locks, so that is built with it.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${SANITIZER_TOOLCHAIN:-nightly}
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}
# Why each report is none of ours stands in these files.
export LSAN_OPTIONS=suppressions=$PWD/scripts/sanitizers/leaks
export TSAN_OPTIONS="suppressions=$PWD/scripts/sanitizers/races halt_on_error=0"
# Tests ask for more memory than there is, to be refused.
export ASAN_OPTIONS=allocator_may_return_null=1
TSAN_OPTIONS+=" allocator_may_return_null=1"
sanitizers=("$@")
[ $# -gt 0 ] || sanitizers=(address thread)

# Tests that look at this process's memory: a sanitizer keeps what is freed, and terabytes beside.
# And those of a process whose files may not grow: a sanitizer has files of its own.
skipped=(--skip cycles_leave_nothing_behind
    --skip own_file::
    --skip keys_and_what_follows_from_them_are_overwritten)

status=0
for sanitizer in "${sanitizers[@]}"; do
    options=()
    if [ "$sanitizer" = thread ]; then
        if [ ! -d "$(rustc "+$toolchain" --print sysroot)/lib/rustlib/src/rust/library" ]; then
            echo "sanitizers: the standard library has no sources here; install them with" >&2
            echo "    rustup component add rust-src --toolchain $toolchain" >&2
            exit 1
        fi
        options=(-Zbuild-std)
        # The model checker goes through the interleavings itself, and takes minutes here.
        skipped+=(--skip work_is_done_and_told_in_order_whoever_has_the_lock)
        # Each message of this one waits a second for its receive, which comes later here.
        skipped+=(--skip a_sender_is_held_back_until_there_are_receives)
    fi
    echo "sanitizers: $sanitizer" >&2
    CARGO_TARGET_DIR="$target/$sanitizer" RUSTFLAGS="-Zsanitizer=$sanitizer" \
        cargo "+$toolchain" test --tests "${options[@]}" --no-fail-fast --locked --target "$host" \
        -p weft-verbs -p weft-rdmap -p weft-rnic -p weft-os -p weft-reactor -p weft-net \
        -p weft-host -p weft-rdmacm -- "${skipped[@]}" || status=1
done
cargo test --locked -p weft-preload --test semantics -- address_sanitizer || status=1

# The same programs under ThreadSanitizer, whose runtime would look names up by libweft.so's `dlsym`
# before code that is compiled for it may run: they have the library linked in, with the names of
# verbs alone. Left out are those that look at the loader, at forks and at signals.
alone="buffers descriptors early_end empty_slots forks gone inherited inherited_ends"
alone+=" interrupted_end killed_peers not_offered"
programs_under_thread() {
    local out=$target/thread programs=crates/preload/tests/c/semantics name device failed=0
    CARGO_TARGET_DIR="$out" RUSTFLAGS="-Zsanitizer=thread" \
        cargo "+$toolchain" rustc -Zbuild-std --locked --target "$host" -p weft-preload \
        --crate-type staticlib || return 1
    ld -r --whole-archive "$out/$host/debug/libweft.a" -o "$out/whole.o"
    objcopy --wildcard --keep-global-symbol='ibv_*' --keep-global-symbol='_ibv_*' \
        --keep-global-symbol='rdma_*' "$out/whole.o" "$out/verbs.o"
    local runtime
    runtime=$(rustc "+$toolchain" --print sysroot)/lib/rustlib/$host/lib/librustc-nightly_rt.tsan.a
    for source in "$programs"/*.c; do
        name=$(basename "$source" .c)
        case " $alone " in *" $name "*) continue ;; esac
        cc -g -fsanitize=thread -c "$source" -o "$out/$name.o"
        cc "$out/$name.o" "$out/verbs.o" -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive \
            -lpthread -ldl -lm -lrt -lstdc++ -o "$out/$name"
        for device in weft0 weft_iw0; do
            echo "sanitizers: thread, $name on $device" >&2
            timeout 300 "$out/$name" $device || { echo "$name on $device: $?" >&2; failed=1; }
        done
        rm "$out/$name" "$out/$name.o"
    done
    return $failed
}
case " ${sanitizers[*]} " in *" thread "*) programs_under_thread || status=1 ;; esac
exit $status

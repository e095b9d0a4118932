//! Compiles a profile into a program for the kernel: <https://man7.org/linux/man-pages/man2/seccomp.2.html>.
//!
//! The program decides for both architectures of 64 bits, so that it is the same wherever the sandbox runs. System calls of
//! any other architecture kill the process. A name without a number there is left out, so that the call is refused.

use std::collections::BTreeMap;

use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator};

/// Names and numbers of system calls.
const NUMBERS: &str = include_str!("numbers.txt");

/// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_AARCH64` of `linux/audit.h`, in the order of the columns of [`NUMBERS`].
const ARCHITECTURES: [u32; 2] = [0xc000_003e, 0xc000_00b7];

/// `__X32_SYSCALL_BIT` of `asm/unistd.h`.
const X32: u32 = 0x4000_0000;

// What a program answers: `linux/seccomp.h`.
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

// Instructions: `linux/bpf_common.h`.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u16,
    /// How many instructions to skip when the comparison holds, and when not.
    skip: (u8, u8),
    value: u32,
}

const fn step(code: u16, value: u32) -> Instruction {
    Instruction { code, skip: (0, 0), value }
}

const fn branch(code: u16, value: u32, holds: u8, fails: u8) -> Instruction {
    Instruction { code, skip: (holds, fails), value }
}

/// What is decided of one system call when its arguments are these.
type Rule<'a> = (&'a [LinuxSeccompArg], u32);

/// Returns the program, as an array of `struct sock_filter` in little-endian order.
pub(super) fn compile(profile: &LinuxSeccomp) -> Vec<u8> {
    let program = link(profile);
    program
        .iter()
        .flat_map(|it| {
            let [a, b] = it.code.to_le_bytes();
            let [c, d, e, f] = it.value.to_le_bytes();
            [a, b, it.skip.0, it.skip.1, c, d, e, f]
        })
        .collect()
}

fn link(profile: &LinuxSeccomp) -> Vec<Instruction> {
    let sections = [0, 1].map(|column| section(profile, column));
    let [of_x86, _] = &sections;
    let mut program = vec![
        step(LOAD, ARCHITECTURE),
        branch(JUMP_EQUAL, ARCHITECTURES[0], 0, 1),
        step(JUMP, 3),
        branch(JUMP_EQUAL, ARCHITECTURES[1], 0, 1),
        step(JUMP, length(of_x86) + 1),
        step(RETURN, KILL_PROCESS),
    ];
    program.extend(sections.into_iter().flatten());
    program
}

fn length(program: &[Instruction]) -> u32 {
    u32::try_from(program.len()).unwrap_or(u32::MAX)
}

/// Returns the number of a system call on the architecture of a column.
fn number(name: &str, column: usize) -> Option<u32> {
    let line = NUMBERS.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.split(' ').nth(column)?.parse().ok()
}

fn answer(action: LinuxSeccompAction, error: Option<u32>) -> u32 {
    match action {
        LinuxSeccompAction::ScmpActAllow => ALLOW,
        LinuxSeccompAction::ScmpActErrno => ERRNO | (error.unwrap_or(1) & 0xffff),
        // No profile of ours has another one.
        _ => KILL_PROCESS,
    }
}

/// Returns the part of the program for one architecture.
fn section(profile: &LinuxSeccomp, column: usize) -> Vec<Instruction> {
    let default = answer(profile.default_action(), profile.default_errno_ret());
    let mut allowed: Vec<u32> = Vec::new();
    let mut with_rules: BTreeMap<u32, Vec<Rule>> = BTreeMap::new();
    for call in profile.syscalls().iter().flatten() {
        let numbers = call.names().iter().filter_map(|name| number(name, column));
        let decision = answer(call.action(), call.errno_ret());
        match call.args().as_deref().unwrap_or_default() {
            [] if decision == ALLOW => allowed.extend(numbers),
            arguments => numbers.for_each(|it| with_rules.entry(it).or_default().push((arguments, decision))),
        }
    }
    // The kernel takes calls of x32 for those of x86_64.
    let mut program = vec![step(LOAD, NUMBER), branch(JUMP_AT_LEAST, X32, 0, 1), step(RETURN, KILL_PROCESS)];
    for (number, rules) in with_rules {
        let block = block(&rules, default);
        program.extend([branch(JUMP_EQUAL, number, 1, 0), step(JUMP, length(&block))]);
        program.extend(block);
    }
    for (first, last) in ranges(allowed) {
        program.extend([
            branch(JUMP_GREATER, last, 3, 0),
            branch(JUMP_AT_LEAST, first, 0, 1),
            step(RETURN, ALLOW),
            step(RETURN, default),
        ]);
    }
    program.push(step(RETURN, default));
    program
}

/// Returns the decision about one system call.
fn block(rules: &[Rule], default: u32) -> Vec<Instruction> {
    let mut block = Vec::new();
    for (arguments, decision) in rules {
        let mut checks: Vec<Instruction> = arguments.iter().flat_map(check).collect();
        // A check that fails goes to the next rule.
        let count = checks.len();
        for (at, check) in checks.iter_mut().enumerate().filter(|(_, it)| it.code == JUMP_EQUAL) {
            check.skip.1 = u8::try_from(count - at).unwrap_or(u8::MAX);
        }
        block.extend(checks);
        block.push(step(RETURN, *decision));
    }
    block.push(step(RETURN, default));
    block
}

/// Returns the comparison of both halves of an argument.
fn check(argument: &LinuxSeccompArg) -> Vec<Instruction> {
    let (mask, value) = match argument.op() {
        LinuxSeccompOperator::ScmpCmpMaskedEq => (argument.value(), argument.value_two().unwrap_or_default()),
        _ => (u64::MAX, argument.value()),
    };
    let offset = ARGUMENTS + 8 * u32::try_from(argument.index()).unwrap_or(0);
    [(offset, 0), (offset + 4, 32)]
        .into_iter()
        .flat_map(|(offset, shift)| {
            let half = |number: u64| u32::try_from(number >> shift & 0xffff_ffff).unwrap_or(0);
            [step(LOAD, offset), step(AND, half(mask)), branch(JUMP_EQUAL, half(value), 0, 0)]
        })
        .collect()
}

/// Returns the first and last number of each run of numbers without gaps.
fn ranges(mut numbers: Vec<u32>) -> Vec<(u32, u32)> {
    numbers.sort_unstable();
    numbers.dedup();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::super::{UnixSockets, profile};
    use super::*;

    /// Runs a program as the kernel does.
    fn decide(program: &[Instruction], architecture: u32, number: u32, arguments: &[u64]) -> u32 {
        let mut data = [number.to_le_bytes(), architecture.to_le_bytes(), [0; 4], [0; 4]].concat();
        data.extend((0..6).flat_map(|at| arguments.get(at).copied().unwrap_or(0).to_le_bytes()));
        let (mut at, mut register) = (0, 0);
        loop {
            let Instruction { code, skip, value } = program[at];
            at += 1;
            let holds = match code {
                LOAD => {
                    let word = &data[value as usize..value as usize + 4];
                    register = u32::from_le_bytes(word.try_into().unwrap());
                    continue;
                }
                AND => {
                    register &= value;
                    continue;
                }
                JUMP => {
                    at += value as usize;
                    continue;
                }
                RETURN => return value,
                JUMP_EQUAL => register == value,
                JUMP_GREATER => register > value,
                JUMP_AT_LEAST => register >= value,
                _ => panic!("{code}"),
            };
            at += usize::from(if holds { skip.0 } else { skip.1 });
        }
    }

    fn decision(column: usize, name: &str, arguments: &[u64]) -> u32 {
        let program = link(&profile(UnixSockets::Only).unwrap());
        decide(&program, ARCHITECTURES[column], number(name, column).unwrap(), arguments)
    }

    #[test]
    fn the_network_is_refused_on_both_architectures() {
        for column in [0, 1] {
            for family in [2, 10] {
                assert_eq!(decision(column, "socket", &[family, 1, 0]), ERRNO | 101);
                assert_eq!(decision(column, "socketpair", &[family, 1, 0]), ERRNO | 1);
            }
            for family in [16, 17, 40, 1 << 32 | 1] {
                assert_eq!(decision(column, "socket", &[family, 1, 0]), ERRNO | 1, "{family}");
            }
            for name in ["socket", "socketpair"] {
                assert_eq!(decision(column, name, &[1, 1, 0]), ALLOW);
            }
        }
    }

    #[test]
    fn the_program_decides_as_the_profile_says() {
        for column in [0, 1] {
            for name in ["read", "execve", "futex", "connect", "rseq", "exit_group"] {
                assert_eq!(decision(column, name, &[9, 9, 9]), ALLOW, "{name}");
            }
            assert_eq!(decision(column, "clone", &[0x11, 0]), ALLOW);
            assert_eq!(decision(column, "clone", &[0x1000_0011]), ERRNO | 1);
            assert_eq!(decision(column, "clone3", &[]), ERRNO | 38);
            assert_eq!(decision(column, "setsockopt", &[3, 1, 2]), ALLOW);
            assert_eq!(decision(column, "setsockopt", &[3, 1, 7]), ERRNO);
            assert_eq!(decision(column, "setsockopt", &[3, 1, 26]), ERRNO | 1);
            assert_eq!(decision(column, "personality", &[0xffff_ffff]), ALLOW);
        }
    }

    #[test]
    fn what_is_not_listed_is_refused_and_another_architecture_kills() {
        let program = link(&profile(UnixSockets::Only).unwrap());
        assert!(program.len() < 4096, "{}", program.len());
        // io_uring_setup, ptrace, bpf, mount, setns, unshare of x86_64.
        for number in [425, 101, 321, 165, 308, 272] {
            assert_eq!(decide(&program, ARCHITECTURES[0], number, &[]), ERRNO | 1, "{number}");
        }
        assert_eq!(decide(&program, ARCHITECTURES[0], X32 | 1, &[]), KILL_PROCESS);
        assert_eq!(decide(&program, 0x4000_0003, 4, &[]), KILL_PROCESS);
    }

    #[test]
    fn every_call_of_the_profile_has_a_number() {
        let profile = profile(UnixSockets::Any).unwrap();
        let names = profile.syscalls().iter().flatten().flat_map(|call| call.names().clone());
        for name in names {
            assert!(number(&name, 0).or(number(&name, 1)).is_some(), "{name}");
        }
    }
}

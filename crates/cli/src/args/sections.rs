//! What the help of commands says after their options: examples, exit statuses, the environment.

pub(super) const SEE_ALSO: &str = "\
`weft run --help` has examples, the exit statuses and the environment.";

pub(super) const DOCTOR_SECTIONS: &str = "\
EXAMPLES
    Is this machine fit for Weft?
        weft doctor

    Why does this program find no device?
        weft doctor ./program --its-option

    Do these two hosts reach each other?
        weft doctor --serve          # on 192.0.2.1
        weft doctor --peer 192.0.2.1 # on the other one

EXIT STATUS
    0    All is well; a note is for information
    1    Something will not work; it is marked WRONG, and a line says what can be done
    125  weft itself failed, or was called wrongly";

pub(super) const INFO_SECTIONS: &str = "\
EXAMPLES
    Who computes the CRC, and how?
        weft info

    What changes with a key, or with markers?
        WEFT_KEY=file:$HOME/.weft-key weft info
        WEFT_MARKERS=on weft info

    Who encrypts, for a script:
        weft info --json | jq -r '.[] | [.device, .components.encryption.by] | @tsv'

EXIT STATUS
    0    it was said
    125  weft itself failed, or was called wrongly

ENVIRONMENT
    WEFT_CRC, WEFT_MARKERS and WEFT_KEY, as in `weft run --help`.";

pub(super) const RUN_SECTIONS: &str = "\
EXAMPLES
    Is there a device?
        weft run ibv_devinfo

    A server, and a client in another terminal:
        weft run ib_write_bw -R
        weft run ib_write_bw -R 192.0.2.1

    Children have the device too:
        weft run -- sh -c 'rping -s -C 3 & rping -c -a 127.0.0.1 -C 3 -v; wait'

    A test that must not pass without RDMA:
        weft run --require-traffic make check

    A program of sockets, over RDMA to peers that are run so too:
        weft run --sockets -v iperf3 -s
        weft run --sockets -v iperf3 -c 192.0.2.1

    A program's error paths:
        weft run --fault qp-error:after=1000 ./program
        weft run --fault 'drop=1%; delay=5ms; seed=7' ./program
        weft run --pcap out.pcapng ./program

    Is a port that flaps survived, and how soon?
        weft run --scenario examples/scenarios/port-flap.toml -- mpirun -n 2 ./program

    Which faults make it crash or hang?
        weft run --fuzz-faults 1..100 -- ./program

FAULTS
    qp-error[=SHARE][:after=N|at=TIME][,status=STATUS][,ON]
                    A request fails, and its queue pair
    rnr:TIMES[,after=N][,ON]
                    A message finds no receive posted, TIMES times in a row
    hang[:after=N][,ON]
                    A send request never completes, nor any behind it
    slow-ack=TIME[:jitter=TIME][,at=TIME][,until=TIME][,ON]
                    Send requests complete late, although the peer has them
    cq-overflow[:after=N][,ON]
                    A completion queue overflows, and polling it fails
    cq-overrun[:after=N][,ON]
                    The same, and polling it finds nothing more
    mr-invalid[:after=N|at=TIME][,ON]
                    A memory region becomes invalid
    fail=VERB[:errno=ERRNO][,after=N][,times=N][,ON]
                    ibv_VERB fails: reg_mr, create_qp, modify_qp, post_send and others
    alloc-fail=KIND[:nth=N|after=N][,times=N][,ON]
                    ENOMEM of the nth context, pd, mw, dm, ah, channel, mr, cq, qp, srq, or any
    device-fatal=TIME[:at=TIME][,ON]
                    The device is reset, and is back after TIME
    port-down=TIME[:at=TIME][,ON]
                    The port of the device is down for TIME
    gid-change[:at=TIME][,ON]
                    The rows of the GID table move
    addr-gone=TIME[:at=TIME][,ON]
                    The addresses of the port are gone for TIME
    pkey-change=KEY[:at=TIME][,ON]
                    The first partition key becomes this one
    lid-change=LID[:at=TIME][,ON]
                    The local identifier becomes this one
    peer-gone[:after=N|at=TIME][,ON]
                    No packet of the peer arrives any more
    drop=SHARE[:way=in|out][,at=TIME][,until=TIME][,ON]
                    Datagrams are lost (weft0)
    corrupt=SHARE[:crc=bad|good][,at=TIME][,until=TIME][,ON]
                    One bit of arriving data is changed, with or without notice of the CRC
    delay=TIME[:jitter=TIME][,at=TIME][,until=TIME][,ON]
                    Arriving data is late
    ON              only=N, qpn=NUMBER, dev=NAME, process=GLOB, rank=N: one of many
    seed=NUMBER     Repeats the random decisions

EXIT STATUS
    0, 1 With --scenario: all is as expected, or not; with --fuzz-faults: nothing failed, or
         something did
    123  CMD succeeded without traffic, against --require-traffic
    125  weft itself failed, or was called wrongly
    126  CMD was found but could not be executed
    127  CMD was not found
    Otherwise the status is CMD's own; a CMD that a signal ends has been ended by that signal.

ENVIRONMENT
    WEFT=off        Run CMD without Weft
    WEFT_LOG        off, error, warn, info, debug or trace
    WEFT_LOG_FORMAT text or json: how a line of the log is written
    WEFT_LIB        The libweft.so to use, as --lib
    WEFT_CRC        on or off: ask for the CRC of RFC 5044
    WEFT_MARKERS    on or off: ask for the markers of RFC 5044
    WEFT_LANE       on, copy or off: carry connections between applications of one
                    user on one host by shared memory, and those of --sockets by
                    AF_UNIX; with copy no process reads the memory of another; with
                    off they go over the network, as between hosts
    WEFT_PROGRESS   inline, engine or hybrid: which threads move the data
    WEFT_PORTS      LOW-HIGH: which ports of UDP and TCP are taken where CMD names none
                    (default: the kernel's choice)
    WEFT_STALL_TIMEOUT_MS
                    How long a peer may stop in the middle of a frame
    WEFT_THREADS    How many threads Weft has at most for connections whose program
                    sleeps (default: one for each CPU, 4 at most)
    WEFT_SEED       The seed of a run of Weft's tests, to repeat it
    WEFT_DEV        The name of weft0
    WEFT_DEVICES    The devices that CMD is to see: how many, or which ones, with commas
                    between NAME[:shuttle|:iwarp][=ADDRESS[+ADDRESS]]
                    (default: weft0,weft_iw0)
    WEFT_FAULT      What is to go wrong, as --fault
    WEFT_PASSTHROUGH
                    1 for faults in the machine's own devices, as --passthrough
    WEFT_PCAP       Where packets are captured, as --pcap
    WEFT_TRACE      Where events are written, as --trace
    WEFT_STATS      on or off: as --stats; the default is on under CI=true
    WEFT_TALLY      Set by weft run: where the processes of a run count
    WEFT_JOURNAL    Set by weft run --scenario: where they say which faults happened
    WEFT_UNKNOWN    Set by weft run: variables that it has warned about
    WEFT_KEY        The key that weft0 seals all traffic with, or file:PATH; see `weft key --help`
    WEFT_INSECURE   1 lets weft0 speak to other hosts in clear text
    WEFT_TRANSPORT  auto, shuttle or iwarp: what rdma-cm connects by, and --sockets
    WEFT_SOCKETS    strict or prefer: whether --sockets refuses a connection with another
                    host that SDP cannot carry, or uses TCP in clear text
                    (default: strict with a key, otherwise prefer)
    WEFT_SOCKETS_RULES
                    Which sockets --sockets leaves to TCP; docs/sockets.md
    WEFT_SOCKETS_VERBOSE
                    on or off: as -v
    WEFT_SOCKETS_STYLE
                    auto or basic: how SDP uses what is below it
    WEFT_SOCKETS_PATIENCE_MS
                    How long an answer for SDP may take after that for TCP
    WEFT_OBSERVE    on or off: whether weft top, ss and metrics see the process (default: on)
    WEFT_PATHS      on or off: whether connections of weft0 begin with what earlier ones
                    learnt of the path (default: off, and on for cp, pipe and forward)
    WEFT_MULTIPATH  on, or addresses and interfaces with , between them: connections of weft0
                    use several paths where the peer does too (default: off)
    WEFT_STATIC     Directory with weft-static-ARCH-linux, for cp, pipe and forward
    Weft warns about any other WEFT_ variable. LD_PRELOAD keeps its earlier content.

NOTES
    A static, setuid or foreign program cannot be intercepted; it runs, with a warning, and
    `weft doctor CMD` explains it.

    With --require-traffic or --stats, and under CI=true, weft stays as CMD's parent: it passes
    signals on to CMD and ends as CMD ended.";

pub(super) const KEY_NEW_SECTIONS: &str = "\
EXAMPLES
    A key for two hosts:
        weft key new ~/.weft-key
        scp -p ~/.weft-key other:
        WEFT_KEY=file:$HOME/.weft-key weft run ib_write_bw -d weft0
        WEFT_KEY=file:$HOME/.weft-key weft run ib_write_bw -d weft0 192.0.2.1   (on the other)

THE KEY
    A line with `weft1:` and 64 hexadecimal digits. A key file has that line; empty lines and lines
    that begin with # do not count. A file that others may read is refused.

EXIT STATUS
    0    the key was made
    125  it was not: the file exists, or cannot be written";

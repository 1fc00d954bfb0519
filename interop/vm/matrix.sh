# What is run. Sourced by interop.sh.

run_matrix() {
    local who crc
    for who in weft siw; do
        for crc in on off; do
            under "CRC $crc" WEFT_CRC=$crc
            programs "$who"
        done
    done
    under "IPv6"
    family=6
    for who in weft siw; do
        row "$who" data "rping -S 4097 -C 10" "rping -s -a @ -v -V -p % -S 4097 -C 10" \
            "rping -c -a @ -v -V -p % -S 4097 -C 10"
    done
    family=4
    under ""
    for who in weft siw; do
        setting_up "$who"
        refusals "$who"
    done
    on_the_wire
    habits
    bad_network
    deaths
}

# under SETTING [VARIABLE=VALUE...]: what the rows that follow run under.
under() {
    setting=$1
    shift
    environment=("$@")
}

# The programs of rdma-core and perftest, in sizes of one segment and of many.
programs() {
    local who=$1
    rping "$who" 64 20
    rping "$who" 4097 10
    rping "$who" 65535 5
    perftest "$who" "ib_write_bw -s 65536 -n 200"
    perftest "$who" "ib_write_bw -s 20001 -n 200 -q 4"
    perftest "$who" "ib_read_bw -s 65536 -n 200"
    perftest "$who" "ib_read_bw -s 20001 -n 200 -o 3"
    perftest "$who" "ib_send_bw -s 65536 -n 200"
    perftest "$who" "ib_send_bw -s 5000 -n 200 -b"
    perftest "$who" "ib_send_lat -s 7 -n 500"
    perftest "$who" "ib_write_lat -s 2 -n 500"
    perftest "$who" "ib_read_lat -s 2 -n 200"
}

# What rping prints when, all done, one of its threads destroys the event channel before another has
# come back to sleep in it.
readonly RPING_AGAIN='rdma_get_cm_event: Bad file descriptor'

# rping WHO SIZE TIMES: the client's data, read and then written back, is compared.
rping() {
    local options="-v -V -p % -S $2 -C $3"
    row "$1" data "rping -S $2 -C $3" "rping -s $options" "rping -c -a @ $options" "$RPING_AGAIN"
}

# What perftest prints when it has lost a race of its own making: whoever is told that all is over
# closes at once, while the other end's kernel may not have returned from sending that; siw then
# completes the send with an error. In an emulated machine the window is wide.
readonly PERFTEST_AGAIN='Bad wc status 2'

# perftest WHO COMMAND: the data is not looked at, but by the CRC when that is on.
perftest() {
    local checked=no
    [[ $setting != "CRC on" ]] || checked=CRC
    row "$1" "$checked" "$2 -R" "$2 -R -F -p %" "$2 -R -F -p % @" "$PERFTEST_AGAIN"
}

# What the end of siw prints when a send that was under way when the connection ended never
# completed. That is rare.
readonly PEER_AGAIN='siw: no completion'

# peer WHO NAME SERVER-OPTIONS CLIENT-OPTIONS
peer() {
    local of_server=$3 of_client=$4
    [ "$1" = siw ] && of_client+=" siw" || of_server+=" siw"
    row "$1" data "$2" "peer listen % $of_server" "peer connect @ % $of_client" "$PEER_AGAIN"
}

# Private data, rejection, depths, and who speaks first.
setting_up() {
    local who=$1 octets
    for octets in 1 251; do
        peer "$who" "private data, $octets octets" "private=$octets expect=$octets" \
            "private=$octets expect=$octets"
    done
    # Of 252 octets and more siw sends the length wrapped. It takes up to 255 with a request, and up
    # to 252 with a reply.
    if [ "$who" = weft ]; then
        peer weft "private data, 252 octets back" "private=252" "expect=252"
        call_row weft "nobody listens" "peer connect @ 7 reject"
    else
        peer siw "private data, 252 octets" "expect=252" "private=252"
        peer siw "private data, 255 octets" "expect=255" "private=255"
    fi
    peer "$who" "rejected" "reject" "reject"
    peer "$who" "rejected, 251 octets both ways" "reject private=251 expect=251" \
        "reject private=251 expect=251"
    peer "$who" "the server speaks first" "speak=server times=5" "speak=server times=5"
    peer "$who" "the client speaks at once, 20 times" "times=20" "times=20"
    peer "$who" "no depth for reads" "ird=0 ord=0" "ird=0 ord=0"
    peer "$who" "messages of 4096 octets" "size=4096 times=3" "size=4096 times=3"
}

# Each end errs in turn; both must end, with every request completed once.
refusals() {
    local who=$1 fault of_client of_server
    for fault in write read long many; do
        of_client= of_server=
        # Weft says why the read failed, IBV_WC_REM_ACCESS_ERR; siw just flushes it.
        if [ "$fault" = read ]; then
            [ "$who" = siw ] && of_server=status=10 || of_client=status=10
        fi
        peer "$who" "the client errs: $fault" "broken" "fault=$fault $of_client"
        peer "$who" "the server errs: $fault" "fault=$fault $of_server" "broken"
    done
}

# What passes between the two, as Wireshark reads it.
on_the_wire() {
    local who
    under "CRC on, decoded" WEFT_CRC=on
    decoding=yes
    for who in weft siw; do
        rping "$who" 4097 3
        perftest "$who" "ib_write_bw -s 20000 -n 20"
        perftest "$who" "ib_read_bw -s 20000 -n 20"
        perftest "$who" "ib_send_bw -s 20000 -n 20"
    done
    decoding=
}

# What siw does when its compile-time choices are made otherwise, and depths that it rounds up.
habits() {
    siw_with mpa_crc_required=1
    under "siw asks for CRC, CRC off" WEFT_CRC=off
    rping weft 4097 5
    rping siw 4097 5
    siw_with peer_to_peer=1
    under "siw peer-to-peer"
    rping siw 4097 5
    peer siw "the server speaks first" "speak=server times=5" "speak=server times=5"
    siw_with peer_to_peer=1 rtr_type=0x40
    under "siw peer-to-peer, by Read"
    rping siw 4097 5
    peer siw "the server speaks first" "speak=server times=5" "speak=server times=5"
    siw_with mpa_version=1
    under "siw revision 1"
    perftest siw "ib_write_bw -s 65536 -n 50"
    perftest siw "ib_send_bw -s 5000 -n 50"
    siw_with try_gso=1
    under "siw offers GSO"
    rping weft 65535 3
    rping siw 65535 3
    siw_with
}

# Long paths that lose segments.
bad_network() {
    local who
    netem_with delay 25ms loss 1%
    under "25 ms, 1 % loss both ways"
    patience=300
    for who in weft siw; do
        rping "$who" 65535 5
        perftest "$who" "ib_write_bw -s 65536 -n 30"
        perftest "$who" "ib_read_bw -s 65536 -n 30"
        perftest "$who" "ib_send_bw -s 65536 -n 30"
        perftest "$who" "ib_send_lat -s 7 -n 50"
        peer "$who" "the server speaks first" "speak=server" "speak=server"
    done
    patience=120
    netem_with
}

# The other end dies in the middle.
deaths() {
    local who options="-p % -S 16384 -C 1000000"
    under ""
    for who in weft siw; do
        death_row "$who" process "rping -S 16384" "rping -s $options" "rping -c -a @ $options"
        death_row "$who" process "ib_write_bw -R" "ib_write_bw -R -F -p % -n 1000000" \
            "ib_write_bw -R -F -p % -n 1000000 @"
    done
    # Last, because it does not come back.
    under "silence of 10 s at most" WEFT_STALL_TIMEOUT_MS=10000
    death_row weft machine "rping -S 16384" "rping -s $options" "rping -c -a @ $options"
}

# SPDX-License-Identifier: MIT
# What a board runs for `mpnet profile --on`, sent to its `sh -s`: POSIX, no other programs than every Linux has.
# Words: ACTION FOLDER [options of mprun]. FOLDER is a name that mpnet made. Answers are lines `mpnet:WORD VALUE`; whatever
# else a login prints is passed over.
umask 077
action=$1 folder=.mpnet-board/$2
shift 2
say() { printf 'mpnet:%s\n' "$*"; }
largest() { cat "$@" 2>/dev/null | sort -n | tail -n 1; }
cd || { say error "no home folder"; exit; }

case $action in
look)
    mkdir -p "$folder" || { say error "cannot make ~/$folder"; exit; }
    say machine "$(uname -m)"
    say system "$(uname -s)"
    for file in mprun net.mpnet; do
        [ -f "$folder/$file" ] && say "has $file" "$(wc -c < "$folder/$file")"
    done
    ;;
keep)
    cd "$folder" || exit
    mv "$1.part" "$1" && chmod 700 "$1" && say "has $1" "$(wc -c < "$1")"
    ;;
run)
    cd "$folder" || exit
    if [ ! -f status ] && ! kill -0 "$(cat pid 2>/dev/null || echo none)" 2>/dev/null; then
        rm -f table.json
        (
            trap '' HUP
            ./mprun net.mpnet "$@" > out 2> errors
            echo $? > status.part
            mv status.part status
        ) < /dev/null > /dev/null 2>&1 &
        echo $! > pid
    fi
    say core "$(sed -n 's/^\(model name\|Model\|Hardware\|CPU part\)[^:]*: //p' /proc/cpuinfo 2>/dev/null | sort -u | tr '\n' ' ')"
    say board "$(tr -d '\000' < /proc/device-tree/model 2>/dev/null)"
    say fastest "$(largest /sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq)"
    say governor "$(cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null)"
    while [ ! -f status ] && kill -0 "$(cat pid)" 2>/dev/null; do
        sleep 1
        say clock "$(largest /sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq)"
        say heat "$(largest /sys/class/thermal/thermal_zone*/temp)"
    done
    say status "$(cat status 2>/dev/null || echo lost)"
    say errors "$(head -c 400 errors 2>/dev/null | head -n 1)"
    ;;
take)
    cd "$folder" || exit
    say bytes "$(wc -c < table.json)"
    cat table.json
    ;;
clean)
    kill "$(cat "$folder/pid" 2>/dev/null || echo none)" 2>/dev/null
    rm -rf -- "$folder"
    rmdir .mpnet-board 2>/dev/null
    say clean
    ;;
esac
exit 0

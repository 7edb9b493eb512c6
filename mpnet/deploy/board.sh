# SPDX-License-Identifier: MIT
# What a board runs for `--on USER@HOST`, sent to its `sh -s`: POSIX, no other programs than every Linux has.
# Words: ACTION FOLDER [FILE]. Both are names that mpnet made. Answers are lines `mpnet:WORD VALUE`; whatever else a login prints
# is passed over. The file `jobs` has mprun's words, a job a line.
umask 077
action=$1 folder=.mpnet-board/$2
shift 2
say() { printf 'mpnet:%s\n' "$*"; }
largest() { cat "$@" 2>/dev/null | sort -n | tail -n 1; }
cd || { say error "no home folder"; exit; }

case $action in
machine)
    say machine "$(uname -m)"
    ;;
look)
    say machine "$(uname -m)"
    mkdir -p "$folder" && cd "$folder" || { say error "cannot make ~/$folder"; exit; }
    for file in *; do
        case $file in
        *.part) ;;
        *.tar.kept) say has "${file%.kept}" "$(cat "$file")" ;;
        *) [ -f "$file" ] && say has "$file" "$(wc -c < "$file")" ;;
        esac
    done
    ;;
run)
    cd "$folder" || exit
    if [ ! -f status ] && ! kill -0 "$(cat pid 2>/dev/null || echo none)" 2>/dev/null; then
        rm -f table.json detections.json printed-*
        (
            trap '' HUP
            set -f
            number=0
            while read -r words; do
                # shellcheck disable=SC2086 # words of their own
                ./mprun $words < /dev/null > "printed-$number" 2> errors
                last=$?
                [ "$last" -le 1 ] || break
                number=$((number + 1))
            done < jobs
            echo "$last" > status.part
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
    say bytes "$(wc -c < "$1")"
    cat "$1"
    ;;
clean)
    kill "$(cat "$folder/pid" 2>/dev/null || echo none)" 2>/dev/null
    rm -rf -- "$folder"
    rmdir .mpnet-board 2>/dev/null
    say clean
    ;;
esac
exit 0

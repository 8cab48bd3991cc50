module skipper/deploy/local/parts/pause

go 1.26.0

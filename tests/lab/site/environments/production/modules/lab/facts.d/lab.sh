#!/bin/sh
echo lab_pluginfact=synced
